package atoll.core.stats;

import java.time.Duration;
import java.util.Arrays;
import java.util.Optional;

/**
 * How long something took.
 *
 * @param count how many times it was measured
 * @param p50 half of them took no longer; empty where nothing was measured
 * @param p99 of a hundred, ninety-nine took no longer
 */
public record Latency(long count, Optional<Duration> p50, Optional<Duration> p99) {
    public static final Latency NONE = new Latency(0, Optional.empty(), Optional.empty());

    /** Of microseconds in any order. */
    static Latency of(long count, int[] micros) {
        if (micros.length == 0) {
            return NONE;
        }
        int[] sorted = micros.clone();
        Arrays.sort(sorted);
        return new Latency(count, Optional.of(at(sorted, 0.50)), Optional.of(at(sorted, 0.99)));
    }

    private static Duration at(int[] sorted, double share) {
        int rank = (int) Math.ceil(share * sorted.length);
        return Duration.ofNanos(1000L * sorted[Math.max(0, rank - 1)]);
    }
}
