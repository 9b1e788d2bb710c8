package atoll.api;

import java.time.Duration;
import java.util.Arrays;
import java.util.Optional;

/** The last thousand durations, exactly: a histogram's buckets are too wide to say what half of them took. */
final class Recent {
    private static final int KEPT = 1024;

    /** Guarded by this. */
    private final long[] nanos = new long[KEPT];

    /** Guarded by this. */
    private long count;

    synchronized void record(long durationNanos) {
        nanos[(int) (count++ % KEPT)] = durationNanos;
    }

    /** What this share of them took at most; empty before the first. */
    synchronized Optional<Duration> quantile(double share) {
        int size = (int) Math.min(count, KEPT);
        if (size == 0) {
            return Optional.empty();
        }
        long[] sorted = Arrays.copyOf(nanos, size);
        Arrays.sort(sorted);
        return Optional.of(Duration.ofNanos(sorted[Math.clamp((long) Math.ceil(share * size) - 1, 0, size - 1)]));
    }
}
