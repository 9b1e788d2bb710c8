package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.SandboxId;
import atoll.core.template.Limits;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;

/**
 * What a box uses at a moment.
 *
 * @param cpu since it was made
 * @param throttled time in which it wanted to run and its limit did not let it
 */
public record BoxUsage(
        BoxId box,
        Optional<SandboxId> sandboxId,
        Instant at,
        Duration cpu,
        Duration throttled,
        long memoryBytes,
        long memoryPeakBytes,
        long diskBytes,
        int processes,
        Optional<Limits> limits) {}
