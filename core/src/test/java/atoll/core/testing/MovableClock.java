package atoll.core.testing;

import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.concurrent.atomic.AtomicReference;

/** The system's clock, set ahead by as much as a test wants. */
public final class MovableClock implements InstantSource {
    private final AtomicReference<Duration> ahead = new AtomicReference<>(Duration.ZERO);

    public void advance(Duration by) {
        ahead.updateAndGet(by::plus);
    }

    @Override
    public Instant instant() {
        return Instant.now().plus(ahead.get());
    }
}
