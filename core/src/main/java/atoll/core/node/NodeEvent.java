package atoll.core.node;

import atoll.core.execution.ChangedFiles;
import atoll.core.execution.ExecutionError;
import atoll.core.execution.ExecutionOutcome.MemoryUse;
import atoll.core.execution.ExecutionResult;
import atoll.core.execution.ExitReason;
import atoll.core.execution.StandardStream;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.OptionalInt;

/** One thing an execution says, numbered from 1 without holes, so that a broken stream goes on where it broke. */
public sealed interface NodeEvent {
    long seq();

    record Started(long seq, Instant at) implements NodeEvent {}

    record Output(long seq, StandardStream stream, long offset, ByteBuffer data) implements NodeEvent {}

    record Result(long seq, ExecutionResult result) implements NodeEvent {}

    record Gap(long seq, StandardStream stream, long offset, long bytes) implements NodeEvent {}

    /** Always the last. */
    record Finished(long seq, Finish finish) implements NodeEvent {}

    /**
     * How it ended.
     *
     * @param duration without the time in which its sandbox was paused
     * @param files set where it was to list them
     */
    record Finish(
            ExitReason reason,
            Optional<ExecutionError> error,
            OptionalInt exitCode,
            OptionalInt signal,
            boolean stateKept,
            String detail,
            Instant startedAt,
            Duration duration,
            Instant endedAt,
            long stdoutBytes,
            long stderrBytes,
            Optional<MemoryUse> memory,
            Optional<ChangedFiles> files) {

        /** One that lists no files and never stood still. */
        public Finish(
                ExitReason reason,
                Optional<ExecutionError> error,
                OptionalInt exitCode,
                OptionalInt signal,
                boolean stateKept,
                String detail,
                Instant startedAt,
                Duration duration,
                long stdoutBytes,
                long stderrBytes,
                Optional<MemoryUse> memory) {
            this(
                    reason,
                    error,
                    exitCode,
                    signal,
                    stateKept,
                    detail,
                    startedAt,
                    duration,
                    startedAt.plus(duration),
                    stdoutBytes,
                    stderrBytes,
                    memory,
                    Optional.empty());
        }
    }
}
