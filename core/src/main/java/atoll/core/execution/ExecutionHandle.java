package atoll.core.execution;

import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.SandboxId;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * A caller's view of a running execution. The caller pulls updates at its own pace: the node holds back what is not taken. For one
 * thread at a time; {@link #interrupt} and {@link #close} may come from any. Closing never ends what runs: it goes on, and its record
 * is finished without the caller.
 */
public interface ExecutionHandle extends AutoCloseable {
    ExecutionId executionId();

    SandboxId sandboxId();

    ContextId contextId();

    /** The how-manieth execution of its context it is, from 1; empty if it was begun by another call than this one. */
    OptionalLong number();

    /** Waits for the next update; empty after {@link ExecutionUpdate.Finished}, and after {@link #close}. */
    Optional<ExecutionUpdate> next() throws InterruptedException;

    /** Takes all updates that are left and returns the outcome. */
    ExecutionOutcome await() throws InterruptedException;

    /** Interrupts the code as Ctrl-C would. The execution then ends by itself. */
    void interrupt();

    @Override
    void close();
}
