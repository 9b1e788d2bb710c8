package atoll.core.execution;

import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import java.time.Instant;
import java.util.Optional;

/**
 * What is on record of an execution, also long after its sandbox is gone.
 *
 * @param code the code, up to a bound
 * @param codeBytes how long the code was
 * @param outcome empty while it runs; its texts are shorter than in the reply, their byte counts are not
 */
public record ExecutionRecord(
        ExecutionId id,
        ProjectId project,
        SandboxId sandboxId,
        ContextId contextId,
        Language language,
        String code,
        long codeBytes,
        Instant createdAt,
        Optional<ExecutionOutcome> outcome) {}
