package atoll.api;

import atoll.core.ContextId;
import atoll.core.ProcessId;
import atoll.core.execution.ExecutionOutcome.MemoryUse;
import atoll.core.process.GuestProcess;
import atoll.core.process.ProcessEnd;
import atoll.core.process.ProcessRecord;
import atoll.core.process.ProcessResult;
import atoll.core.process.TerminalSize;
import atoll.core.usage.UsageSample;
import com.fasterxml.jackson.annotation.JsonUnwrapped;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;

/** Processes and what sandboxes use, as JSON. */
final class ProcessViews {
    private ProcessViews() {}

    record Pty(int cols, int rows) {
        static Pty of(TerminalSize size) {
            return new Pty(size.columns(), size.rows());
        }
    }

    record Memory(long limitBytes, long peakBytes) {
        static Memory of(MemoryUse use) {
            return new Memory(use.limitBytes(), use.peakBytes());
        }
    }

    record View(
            String processId,
            String sandboxId,
            OptionalInt pid,
            List<String> argv,
            Optional<String> command,
            String cwd,
            String user,
            boolean stdin,
            Optional<Pty> pty,
            Optional<Double> timeoutSeconds,
            Map<String, String> labels,
            boolean main,
            String state,
            Instant createdAt,
            Optional<Instant> startedAt,
            Optional<Instant> endedAt,
            Optional<Double> durationMs,
            Optional<String> exitReason,
            OptionalInt exitCode,
            OptionalInt signal,
            Optional<String> detail,
            Optional<Memory> memory,
            long stdoutBytes,
            long stderrBytes,
            long stdinOffset,
            boolean stdinClosed) {
        static View of(ProcessRecord process) {
            Optional<ProcessEnd> end = process.end();
            return new View(
                    process.id().toString(),
                    process.sandboxId().toString(),
                    process.pid() == 0 ? OptionalInt.empty() : OptionalInt.of(process.pid()),
                    process.argv(),
                    process.command(),
                    process.cwd(),
                    process.user(),
                    process.stdin(),
                    process.terminal().map(Pty::of),
                    process.timeout().map(limit -> limit.toMillis() / 1000.0),
                    process.labels(),
                    process.main(),
                    process.running() ? "running" : "ended",
                    process.createdAt(),
                    process.startedAt(),
                    end.map(ProcessEnd::at),
                    end.map(how -> Wire.millis(how.duration())),
                    end.map(how -> how.reason().text()),
                    end.map(ProcessEnd::exitCode).orElseGet(OptionalInt::empty),
                    end.map(ProcessEnd::signal).orElseGet(OptionalInt::empty),
                    end.map(ProcessEnd::detail).filter(detail -> !detail.isEmpty()),
                    end.flatMap(ProcessEnd::memory).map(Memory::of),
                    process.progress().stdoutBytes(),
                    process.progress().stderrBytes(),
                    process.progress().stdinOffset(),
                    process.progress().stdinClosed());
        }
    }

    /** A process that was waited for, with what it printed. */
    record Result(
            @JsonUnwrapped View process,
            String output,
            String stdout,
            String stderr,
            boolean truncated,
            boolean stdoutTruncated,
            boolean stderrTruncated) {
        static Result of(ProcessResult result) {
            return new Result(
                    View.of(result.process()),
                    result.printed().output().text(),
                    result.printed().stdout().text(),
                    result.printed().stderr().text(),
                    result.printed().truncated(),
                    result.printed().stdout().truncated(),
                    result.printed().stderr().truncated());
        }
    }

    record Guest(
            int pid,
            int parentPid,
            int uid,
            String user,
            String command,
            List<String> argv,
            String state,
            long cpuMs,
            long memoryBytes,
            Instant startedAt,
            Optional<String> processId,
            Optional<String> contextId) {
        static Guest of(GuestProcess guest) {
            return new Guest(
                    guest.pid(),
                    guest.parentPid(),
                    guest.uid(),
                    guest.user(),
                    guest.command(),
                    guest.argv(),
                    guest.state(),
                    guest.cpu().toMillis(),
                    guest.memoryBytes(),
                    guest.startedAt(),
                    guest.processId().map(ProcessId::toString),
                    guest.contextId().map(ContextId::toString));
        }
    }

    record Usage(
            Instant at,
            OptionalDouble cpuPercent,
            double cpuSeconds,
            double throttledSeconds,
            long memoryBytes,
            long memoryLimitBytes,
            long memoryPeakBytes,
            long diskBytes,
            long diskLimitBytes,
            int processes) {
        static Usage of(UsageSample sample) {
            return new Usage(
                    sample.at(),
                    sample.cpuPercent(),
                    seconds(sample.cpu()),
                    seconds(sample.throttled()),
                    sample.memoryBytes(),
                    sample.memoryLimitBytes(),
                    sample.memoryPeakBytes(),
                    sample.diskBytes(),
                    sample.diskLimitBytes(),
                    sample.processes());
        }

        private static double seconds(Duration duration) {
            return duration.toMillis() / 1000.0;
        }
    }

    record UsagePage(List<Usage> items, Optional<String> next, Optional<Usage> current) {}
}
