package atoll.core.usage;

import atoll.core.SandboxId;
import java.time.Duration;
import java.time.Instant;
import java.util.OptionalDouble;

/**
 * What a sandbox used at a moment.
 *
 * @param cpuPercent of one CPU, since the sample before; empty for the first
 * @param cpu since its body was made
 * @param throttled time in which it wanted to run and its CPU limit did not let it
 * @param processes inside
 */
public record UsageSample(
        SandboxId sandboxId,
        Instant at,
        OptionalDouble cpuPercent,
        Duration cpu,
        Duration throttled,
        long memoryBytes,
        long memoryLimitBytes,
        long memoryPeakBytes,
        long diskBytes,
        long diskLimitBytes,
        int processes) {}
