package atoll.core.execution;

import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.SandboxId;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * How an execution ended and what it said.
 *
 * @param output what a person would have seen in a terminal
 * @param results displayed values in their order; the main one, if any, is the last expression's
 * @param exitCode set when the code ran to its end (bash: the status of its last command), called exit(), or its interpreter ended by itself
 * @param signal set when a signal ended the interpreter
 * @param stateKept false when the context's interpreter had to be started afresh: its names, imports and open files are gone
 * @param detail a sentence for people, with values; empty when there is nothing to say
 * @param memory set when it ran out of memory
 * @param files what it has made or changed; empty where it was not to tell
 * @param truncated whether anything was left out here that the program printed or displayed
 */
public record ExecutionOutcome(
        ExecutionId executionId,
        SandboxId sandboxId,
        ContextId contextId,
        CapturedText output,
        CapturedText stdout,
        CapturedText stderr,
        List<ExecutionResult> results,
        Optional<ExecutionError> error,
        ExitReason exitReason,
        OptionalInt exitCode,
        OptionalInt signal,
        boolean stateKept,
        String detail,
        Optional<MemoryUse> memory,
        Instant startedAt,
        Duration duration,
        boolean truncated,
        Optional<ChangedFiles> files) {

    public ExecutionOutcome {
        results = List.copyOf(results);
    }

    /** One that lists no files. */
    public ExecutionOutcome(
            ExecutionId executionId,
            SandboxId sandboxId,
            ContextId contextId,
            CapturedText output,
            CapturedText stdout,
            CapturedText stderr,
            List<ExecutionResult> results,
            Optional<ExecutionError> error,
            ExitReason exitReason,
            OptionalInt exitCode,
            OptionalInt signal,
            boolean stateKept,
            String detail,
            Optional<MemoryUse> memory,
            Instant startedAt,
            Duration duration,
            boolean truncated) {
        this(
                executionId,
                sandboxId,
                contextId,
                output,
                stdout,
                stderr,
                results,
                error,
                exitReason,
                exitCode,
                signal,
                stateKept,
                detail,
                memory,
                startedAt,
                duration,
                truncated,
                Optional.empty());
    }

    /** What memory there was and how much was used, in bytes. */
    public record MemoryUse(long limitBytes, long peakBytes) {}
}
