package atoll.core.testing;

import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.time.temporal.ChronoUnit;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;

/** The system's clock, set ahead by as much as a test wants. */
public final class MovableClock implements InstantSource {
    private final AtomicReference<Duration> ahead = new AtomicReference<>(Duration.ZERO);
    private volatile Optional<Instant> stopped = Optional.empty();

    /** It goes on only by {@link #advance}. */
    public void stop() {
        // As fine as stores keep it.
        stopped = Optional.of(instant().truncatedTo(ChronoUnit.MILLIS));
    }

    public void advance(Duration by) {
        ahead.updateAndGet(by::plus);
    }

    @Override
    public Instant instant() {
        return stopped.orElseGet(Instant::now).plus(ahead.get());
    }
}
