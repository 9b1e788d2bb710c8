package atoll.core.file;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.SandboxId;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;

/** The watches whose events are asked for by polling. One that nobody asks for is ended. */
final class Watches {
    static final Duration UNASKED = Duration.ofMinutes(5);
    static final int MOST_PER_SANDBOX = 64;
    private static final Duration SWEEP = Duration.ofSeconds(5);

    private static final class Entry {
        final SandboxId sandbox;
        final WatchedFolder folder;
        Instant asked;

        Entry(SandboxId sandbox, WatchedFolder folder, Instant asked) {
            this.sandbox = sandbox;
            this.folder = folder;
            this.asked = asked;
        }
    }

    private final InstantSource clock;
    private final Executor background;
    private final Object lock = new Object();

    @GuardedBy("lock")
    private final Map<WatchId, Entry> entries = new HashMap<>();

    @GuardedBy("lock")
    private boolean sweeping;

    Watches(InstantSource clock, Executor background) {
        this.clock = clock;
        this.background = background;
    }

    void checkRoom(SandboxId sandbox) {
        sweep();
        synchronized (lock) {
            long there = entries.values().stream()
                    .filter(entry -> entry.sandbox.equals(sandbox))
                    .count();
            if (there >= MOST_PER_SANDBOX) {
                throw new AtollException(
                        ErrorCode.QUOTA_EXCEEDED,
                        "watches: %d are open in sandbox %s (expected: fewer than %d)"
                                .formatted(there, sandbox, MOST_PER_SANDBOX),
                        "Each gathers events until it is ended or nobody has asked for %d minutes."
                                .formatted(UNASKED.toMinutes()),
                        "End those that are not needed, or watch a folder recursively.");
            }
        }
    }

    WatchId add(SandboxId sandbox, WatchedFolder folder) {
        WatchId id = WatchId.random();
        boolean begin;
        synchronized (lock) {
            entries.put(id, new Entry(sandbox, folder, clock.instant()));
            begin = !sweeping;
            sweeping = true;
        }
        if (begin) {
            background.execute(this::sweepWhileThereAreAny);
        }
        return id;
    }

    WatchedFolder find(SandboxId sandbox, WatchId id) {
        sweep();
        synchronized (lock) {
            Entry entry = entries.get(id);
            if (entry == null || !entry.sandbox.equals(sandbox)) {
                throw WatchId.unknown(id.text());
            }
            entry.asked = clock.instant();
            return entry.folder;
        }
    }

    void end(SandboxId sandbox, WatchId id) {
        Entry ended;
        synchronized (lock) {
            ended = entries.get(id);
            if (ended == null || !ended.sandbox.equals(sandbox)) {
                return;
            }
            entries.remove(id);
        }
        ended.folder.close();
    }

    private void sweepWhileThereAreAny() {
        try {
            boolean more = true;
            while (more) {
                Thread.sleep(SWEEP);
                sweep();
                synchronized (lock) {
                    more = !entries.isEmpty();
                    sweeping = more;
                }
            }
        } catch (InterruptedException _) {
            // The server stops.
        }
    }

    /** Ends what nobody has asked for. */
    private void sweep() {
        Instant oldest = clock.instant().minus(UNASKED);
        List<Entry> over;
        synchronized (lock) {
            over = entries.values().stream()
                    .filter(entry -> entry.asked.isBefore(oldest))
                    .toList();
            entries.values().removeAll(over);
        }
        over.forEach(entry -> entry.folder.close());
    }
}
