package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.SandboxId;
import java.util.Optional;

/** A process that a node holds: running, or ended and not yet forgotten. */
public record HeldProcess(BoxId box, Optional<SandboxId> sandboxId, NodeProcess process) {}
