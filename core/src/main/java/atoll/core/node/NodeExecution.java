package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.SandboxId;
import java.util.Optional;

/** An execution that a node holds: running, or ended and not yet forgotten. */
public record NodeExecution(
        ExecutionId id, BoxId box, ContextId contextId, Optional<SandboxId> sandboxId, boolean running) {}
