package atoll.core.sandbox;

import atoll.core.ContextId;
import atoll.core.Language;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import java.time.Instant;

/**
 * A stateful interpreter in a sandbox.
 *
 * @param isDefault whether calls that name only its language go to it
 */
public record Context(
        ContextId id,
        ProjectId project,
        SandboxId sandboxId,
        Language language,
        boolean isDefault,
        Instant createdAt) {}
