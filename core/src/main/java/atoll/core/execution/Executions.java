package atoll.core.execution;

import atoll.core.Caller;
import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.Page;
import atoll.core.SandboxId;
import java.util.Optional;

/** Executions that run or ran. */
public interface Executions {
    ExecutionRecord get(Caller caller, ExecutionId id);

    /** Newest first; each as {@link ExecutionRecord#listed} gives it. */
    Page<ExecutionRecord> list(Caller caller, ExecutionQuery query);

    /** Follows an execution from its first event on; one that has ended is replayed from its spool. */
    ExecutionHandle attach(Caller caller, ExecutionId id) throws InterruptedException;

    /** Interrupts it as Ctrl-C would; nothing happens if it has ended. */
    void interrupt(Caller caller, ExecutionId id);

    /** Interrupts what runs in a context, as Ctrl-C would, and returns its id; what waits there then runs. Empty if nothing ran. */
    Optional<ExecutionId> interruptContext(Caller caller, SandboxId sandbox, ContextId context);

    /** The raw bytes of one stream from {@code offset} on; with {@code follow}, to the end of an execution that still runs. */
    OutputReader read(Caller caller, ExecutionId id, StandardStream stream, long offset, boolean follow);
}
