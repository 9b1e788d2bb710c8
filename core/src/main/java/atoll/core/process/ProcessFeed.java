package atoll.core.process;

import java.util.Optional;

/**
 * What a process says, for one reader. The caller pulls updates at its own pace; that holds back neither the program nor anybody else. For
 * one thread at a time; {@link #close} may come from any, and never ends what runs.
 */
public interface ProcessFeed extends AutoCloseable {
    /** As it was when the feed was opened. */
    ProcessRecord process();

    /** Waits for the next update; empty after {@link ProcessUpdate.Ended}, and after {@link #close}. */
    Optional<ProcessUpdate> next() throws InterruptedException;

    @Override
    void close();
}
