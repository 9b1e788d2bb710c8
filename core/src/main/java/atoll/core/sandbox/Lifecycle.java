package atoll.core.sandbox;

import java.time.Duration;
import java.util.Optional;

/**
 * What was agreed on how long a sandbox lives and what happens then.
 *
 * <p>Its lifetime is counted from its start, from each resume, and from each {@code extend}. It is idle while no call needs its inside,
 * no code runs in it (also in the background) and nothing passes a stream, socket or tunnel into it; a process alone that runs in the
 * background is no activity. Neither goes on while it is paused.
 *
 * @param lifetime how long it runs; empty: no bound
 * @param idleTimeout how long it may be idle; empty: no bound
 * @param onTimeout what happens at the end of either
 * @param autoResume whether a call that needs the inside of the paused sandbox resumes it
 */
public record Lifecycle(
        Optional<Duration> lifetime, Optional<Duration> idleTimeout, OnTimeout onTimeout, boolean autoResume) {
    /** Nothing ends it by itself, and use resumes it. */
    public static final Lifecycle UNBOUND = new Lifecycle(Optional.empty(), Optional.empty(), OnTimeout.PAUSE, true);

    public Lifecycle withLifetime(Optional<Duration> other) {
        return new Lifecycle(other, idleTimeout, onTimeout, autoResume);
    }
}
