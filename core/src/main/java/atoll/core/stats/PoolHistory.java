package atoll.core.stats;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The last three hours of each pool, minute by minute, in memory. A minute keeps what it measured, up to a bound, then a fair choice of
 * it; so percentiles of any number of minutes are those of what was measured, and idle minutes cost nothing.
 */
final class PoolHistory {
    static final int MINUTES = 180;
    static final String HIT = "pool";

    private static final int MOST_KEPT = 1024;

    private final InstantSource clock;
    private final ReentrantLock lock = new ReentrantLock();

    @GuardedBy("lock")
    private final Map<String, TreeMap<Long, Minute>> templates = new HashMap<>();

    /** Guarded by the history's lock. */
    private static final class Minute {
        private int depth;
        private int ready;
        private long count;
        private long hits;
        private final Map<String, Long> misses = new TreeMap<>();
        private int[] micros = new int[4];
        private int kept;

        void add(String from, int took) {
            count++;
            if (from.equals(HIT)) {
                hits++;
            } else {
                misses.merge(from, 1L, Long::sum);
            }
            if (kept < MOST_KEPT) {
                if (kept == micros.length) {
                    micros = Arrays.copyOf(micros, 2 * kept);
                }
                micros[kept++] = took;
                return;
            }
            long place = ThreadLocalRandom.current().nextLong(count);
            if (place < MOST_KEPT) {
                micros[(int) place] = took;
            }
        }
    }

    PoolHistory(InstantSource clock) {
        this.clock = clock;
    }

    private static long minute(Instant at) {
        return Math.floorDiv(at.getEpochSecond(), 60L);
    }

    /** Someone got a new sandbox. */
    void taken(String template, String from, Duration took) {
        int micros = (int) Math.min(Integer.MAX_VALUE, took.toNanos() / 1000);
        lock.lock();
        try {
            current(template).add(from, micros);
        } finally {
            lock.unlock();
        }
    }

    /** What a pool holds now. */
    void seen(String template, int depth, int ready) {
        lock.lock();
        try {
            Minute now = current(template);
            now.depth = depth;
            now.ready = ready;
        } finally {
            lock.unlock();
        }
    }

    @GuardedBy("lock")
    private Minute current(String template) {
        TreeMap<Long, Minute> minutes = templates.computeIfAbsent(template, _ -> new TreeMap<>());
        long now = minute(clock.instant());
        Minute current = minutes.get(now);
        if (current == null) {
            current = new Minute();
            Map.Entry<Long, Minute> before = minutes.lowerEntry(now);
            if (before != null) {
                current.depth = before.getValue().depth;
                current.ready = before.getValue().ready;
            }
            minutes.put(now, current);
            minutes.headMap(now - MINUTES, true).clear();
        }
        return current;
    }

    /** The minutes in which something was seen or done, of at most so many, the oldest first. */
    List<PoolMinute> minutes(String template, int most) {
        lock.lock();
        try {
            List<PoolMinute> all = new ArrayList<>();
            recent(template, most)
                    .forEach((minute, of) -> all.add(new PoolMinute(
                            Instant.ofEpochSecond(60 * minute),
                            of.depth,
                            of.ready,
                            of.hits,
                            of.misses,
                            Latency.of(of.count, Arrays.copyOf(of.micros, of.kept)))));
            return all;
        } finally {
            lock.unlock();
        }
    }

    @GuardedBy("lock")
    private Map<Long, Minute> recent(String template, int most) {
        TreeMap<Long, Minute> minutes = templates.getOrDefault(template, new TreeMap<>());
        return minutes.tailMap(minute(clock.instant()) - most, false);
    }

    /** Over all minutes that are kept. */
    Latency latency(String template) {
        lock.lock();
        try {
            return latency(List.of(template));
        } finally {
            lock.unlock();
        }
    }

    /** The same over all templates. */
    Latency latency() {
        lock.lock();
        try {
            return latency(List.copyOf(templates.keySet()));
        } finally {
            lock.unlock();
        }
    }

    @GuardedBy("lock")
    private Latency latency(List<String> of) {
        long count = 0;
        int[] all = new int[16];
        int length = 0;
        for (String template : of) {
            for (Minute minute : recent(template, MINUTES).values()) {
                count += minute.count;
                if (length + minute.kept > all.length) {
                    all = Arrays.copyOf(all, Math.max(2 * all.length, length + minute.kept));
                }
                System.arraycopy(minute.micros, 0, all, length, minute.kept);
                length += minute.kept;
            }
        }
        return Latency.of(count, Arrays.copyOf(all, length));
    }
}
