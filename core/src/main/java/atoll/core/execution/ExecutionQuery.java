package atoll.core.execution;

import atoll.core.ContextId;
import atoll.core.PageRequest;
import atoll.core.SandboxId;
import java.util.Optional;

/** Which executions to list; an empty filter takes all. */
public record ExecutionQuery(
        Optional<SandboxId> sandboxId, Optional<ContextId> contextId, Optional<Boolean> running, PageRequest page) {
    public static final ExecutionQuery ALL =
            new ExecutionQuery(Optional.empty(), Optional.empty(), Optional.empty(), PageRequest.FIRST);
}
