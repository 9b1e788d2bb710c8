package atoll.core.file;

import java.time.Duration;
import java.util.Optional;

/** A watch whose events come as they happen. For one thread; {@link #close} may come from any. */
public interface FileWatch extends AutoCloseable {
    /** Waits for the next event, at most that long; empty if none came. */
    Optional<FileEvent> next(Duration wait) throws InterruptedException;

    @Override
    void close();
}
