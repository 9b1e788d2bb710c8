package atoll.core.template;

import java.time.Duration;
import java.util.Optional;

/** What happens in a build, event by event. For one reader. */
public interface BuildLog extends AutoCloseable {
    /** Waits for the next event at most so long; empty if none came. {@link #isOver} tells whether another may come. */
    Optional<BuildEvent> next(Duration limit) throws InterruptedException;

    /** Whether all there is was read. */
    boolean isOver();

    @Override
    void close();
}
