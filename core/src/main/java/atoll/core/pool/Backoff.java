package atoll.core.pool;

import java.time.Duration;

/** When to try again what failed: after twice as long each time, up to a bound. Not thread-safe. */
final class Backoff {
    private final long first;
    private final long longest;
    private int failures;
    private long retryAt;

    Backoff(Duration first, Duration longest) {
        this.first = first.toNanos();
        this.longest = longest.toNanos();
    }

    void failed(long nanos) {
        retryAt = nanos + Math.min(longest, first << Math.min(failures, 20));
        failures++;
    }

    void succeeded() {
        failures = 0;
    }

    /** How long to wait before the next try; 0 or less for not at all. */
    long left(long nanos) {
        return failures == 0 ? 0 : retryAt - nanos;
    }
}
