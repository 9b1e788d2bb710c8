package atoll.core.testing;

import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/** Waits for what other threads bring about. */
public final class Eventually {
    private static final Duration LIMIT = Duration.ofSeconds(20);
    private static final long LOOK_EVERY_NANOS = 500_000;

    private Eventually() {}

    /** Returns once the condition holds; after the limit it fails and shows the state. */
    public static void until(BooleanSupplier condition, Supplier<?> state) {
        long end = System.nanoTime() + LIMIT.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("did not come true within " + LIMIT + "; state: " + state.get());
            }
            LockSupport.parkNanos(LOOK_EVERY_NANOS);
        }
    }
}
