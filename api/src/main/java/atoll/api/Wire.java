package atoll.api;

import atoll.core.Page;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.execution.CapturedText;
import atoll.core.execution.ChangedFile;
import atoll.core.execution.ChangedFiles;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExecutionResult;
import atoll.core.node.NodeContext;
import atoll.core.sandbox.Context;
import atoll.core.sandbox.Lifecycle;
import atoll.core.sandbox.Run;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SeenContext;
import atoll.core.snapshot.Snapshot;
import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.annotation.JsonRawValue;
import com.fasterxml.jackson.annotation.JsonUnwrapped;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;

/** What goes out, as JSON; field names are these in snake_case. openapi.json describes each, and a test keeps the two together. */
final class Wire {
    private Wire() {}

    /** Part of a list. */
    record Items<T>(List<T> items, Optional<String> next) {
        static <T> Items<T> of(Page<T> page) {
            return new Items<>(page.items(), page.next());
        }
    }

    record Failure(String name, String message, String traceback) {}

    /** {@code update} and {@code clear} are said of a value that is streamed; in an outcome they have been followed. */
    record Result(
            boolean main,
            @JsonRawValue String data,
            @JsonRawValue String metadata,
            long truncatedBytes,
            Map<String, Long> leftOut,
            @JsonInclude(JsonInclude.Include.NON_EMPTY) Optional<String> displayId,
            @JsonInclude(JsonInclude.Include.NON_DEFAULT) boolean update,
            @JsonInclude(JsonInclude.Include.NON_DEFAULT) boolean clear) {
        static Result of(ExecutionResult result) {
            return new Result(
                    result.main(),
                    result.data().json(),
                    result.metadata(),
                    result.truncatedBytes(),
                    result.leftOut(),
                    result.displayId(),
                    result.update(),
                    result.clear());
        }
    }

    record ChangedFileView(String path, long size, String mimeType, Instant modifiedAt) {
        static ChangedFileView of(ChangedFile file) {
            return new ChangedFileView(file.path(), file.sizeBytes(), file.mimeType(), file.modifiedAt());
        }
    }

    record Start(String executionId, String sandboxId, String contextId) {}

    record Gap(String stream, long offset, long bytes) {}

    /** How an execution ended. */
    record Outcome(
            String output,
            String sandboxId,
            String contextId,
            String executionId,
            String stdout,
            String stderr,
            List<Result> results,
            Optional<Failure> error,
            String exitReason,
            OptionalInt exitCode,
            OptionalInt signal,
            boolean stateKept,
            String detail,
            double durationMs,
            Instant startedAt,
            boolean truncated,
            long stdoutBytes,
            long stderrBytes,
            boolean stdoutTruncated,
            boolean stderrTruncated,
            OptionalLong memoryLimitBytes,
            OptionalLong memoryPeakBytes,
            Optional<List<ChangedFileView>> files,
            Optional<Boolean> filesIncomplete) {

        /** The same with shorter texts and other results. */
        Outcome with(String newOutput, String newStdout, String newStderr, boolean shortened, List<Result> newResults) {
            return new Outcome(
                    newOutput,
                    sandboxId,
                    contextId,
                    executionId,
                    newStdout,
                    newStderr,
                    newResults,
                    error,
                    exitReason,
                    exitCode,
                    signal,
                    stateKept,
                    detail,
                    durationMs,
                    startedAt,
                    truncated || shortened || newResults.stream().anyMatch(result -> result.truncatedBytes() > 0),
                    stdoutBytes,
                    stderrBytes,
                    stdoutTruncated || !newStdout.equals(stdout),
                    stderrTruncated || !newStderr.equals(stderr),
                    memoryLimitBytes,
                    memoryPeakBytes,
                    files,
                    filesIncomplete);
        }

        static Outcome of(ExecutionOutcome outcome) {
            CapturedText stdout = outcome.stdout();
            CapturedText stderr = outcome.stderr();
            return new Outcome(
                    outcome.output().text(),
                    outcome.sandboxId().toString(),
                    outcome.contextId().toString(),
                    outcome.executionId().toString(),
                    stdout.text(),
                    stderr.text(),
                    outcome.results().stream().map(Result::of).toList(),
                    outcome.error().map(e -> new Failure(e.name(), e.message(), e.traceback())),
                    outcome.exitReason().text(),
                    outcome.exitCode(),
                    outcome.signal(),
                    outcome.stateKept(),
                    outcome.detail(),
                    millis(outcome.duration()),
                    outcome.startedAt(),
                    outcome.truncated(),
                    stdout.totalBytes(),
                    stderr.totalBytes(),
                    stdout.truncated(),
                    stderr.truncated(),
                    outcome.memory().map(m -> OptionalLong.of(m.limitBytes())).orElseGet(OptionalLong::empty),
                    outcome.memory().map(m -> OptionalLong.of(m.peakBytes())).orElseGet(OptionalLong::empty),
                    outcome.files()
                            .map(files -> files.files().stream()
                                    .map(ChangedFileView::of)
                                    .toList()),
                    outcome.files().map(ChangedFiles::incomplete));
        }
    }

    /** An execution on record: the fields of its {@link Outcome}, null while it runs, and what was asked for. */
    record Execution(
            String executionId,
            String sandboxId,
            String contextId,
            String language,
            String state,
            String code,
            long codeBytes,
            Instant createdAt,
            Optional<Instant> endedAt,
            @JsonUnwrapped Ending ending) {

        static Execution of(ExecutionRecord execution) {
            Optional<ExecutionOutcome> outcome = execution.outcome();
            return new Execution(
                    execution.id().toString(),
                    execution.sandboxId().toString(),
                    execution.contextId().toString(),
                    execution.language().text(),
                    outcome.isPresent() ? "ended" : "running",
                    execution.code(),
                    execution.codeBytes(),
                    execution.createdAt(),
                    outcome.map(o -> o.startedAt().plus(o.duration())),
                    Ending.of(outcome.map(Outcome::of)));
        }
    }

    /** What an {@link Outcome} adds to what was known from the start. */
    record Ending(
            Optional<String> output,
            Optional<String> stdout,
            Optional<String> stderr,
            Optional<List<Result>> results,
            Optional<Failure> error,
            Optional<String> exitReason,
            OptionalInt exitCode,
            OptionalInt signal,
            Optional<Boolean> stateKept,
            Optional<String> detail,
            Optional<Double> durationMs,
            Optional<Instant> startedAt,
            Optional<Boolean> truncated,
            Optional<Long> stdoutBytes,
            Optional<Long> stderrBytes,
            Optional<Boolean> stdoutTruncated,
            Optional<Boolean> stderrTruncated,
            OptionalLong memoryLimitBytes,
            OptionalLong memoryPeakBytes,
            Optional<List<ChangedFileView>> files,
            Optional<Boolean> filesIncomplete) {

        static Ending of(Optional<Outcome> outcome) {
            return new Ending(
                    outcome.map(Outcome::output),
                    outcome.map(Outcome::stdout),
                    outcome.map(Outcome::stderr),
                    outcome.map(Outcome::results),
                    outcome.flatMap(Outcome::error),
                    outcome.map(Outcome::exitReason),
                    outcome.map(Outcome::exitCode).orElseGet(OptionalInt::empty),
                    outcome.map(Outcome::signal).orElseGet(OptionalInt::empty),
                    outcome.map(Outcome::stateKept),
                    outcome.map(Outcome::detail),
                    outcome.map(Outcome::durationMs),
                    outcome.map(Outcome::startedAt),
                    outcome.map(Outcome::truncated),
                    outcome.map(Outcome::stdoutBytes),
                    outcome.map(Outcome::stderrBytes),
                    outcome.map(Outcome::stdoutTruncated),
                    outcome.map(Outcome::stderrTruncated),
                    outcome.map(Outcome::memoryLimitBytes).orElseGet(OptionalLong::empty),
                    outcome.map(Outcome::memoryPeakBytes).orElseGet(OptionalLong::empty),
                    outcome.flatMap(Outcome::files),
                    outcome.flatMap(Outcome::filesIncomplete));
        }
    }

    record Limits(long memoryBytes, double cpu, long diskBytes, int maxProcesses, int maxOpenFiles) {
        static Limits of(atoll.core.template.Limits limits) {
            return new Limits(
                    limits.memoryBytes(),
                    limits.cpuMillis() / 1000.0,
                    limits.diskBytes(),
                    limits.maxProcesses(),
                    limits.maxOpenFiles());
        }
    }

    record ForkedFrom(Optional<String> sandboxId, Optional<String> snapshotId) {
        static ForkedFrom of(Sandbox.Origin origin) {
            return new ForkedFrom(
                    origin.sandbox().map(SandboxId::toString), origin.snapshot().map(SnapshotId::toString));
        }
    }

    /** {@code lifetimeSeconds} is null for none, {@code idleTimeoutSeconds} 0. */
    record SandboxView(
            String sandboxId,
            Optional<String> name,
            String template,
            String state,
            Limits limits,
            Map<String, String> labels,
            Optional<Long> lifetimeSeconds,
            long idleTimeoutSeconds,
            String onTimeout,
            boolean autoResume,
            Instant createdAt,
            Optional<Instant> expiresAt,
            Optional<Instant> pausedAt,
            Instant lastActiveAt,
            String runId,
            Optional<ForkedFrom> forkedFrom,
            Optional<Instant> endedAt,
            Optional<String> endReason,
            Optional<String> endDetail,
            Optional<String> mainProcessId,
            OptionalInt exitCode) {

        static SandboxView of(Sandbox sandbox) {
            Lifecycle life = sandbox.lifecycle();
            return new SandboxView(
                    sandbox.id().toString(),
                    sandbox.name(),
                    sandbox.template(),
                    sandbox.state().text(),
                    Limits.of(sandbox.limits()),
                    sandbox.labels(),
                    life.lifetime().map(Duration::toSeconds),
                    life.idleTimeout().map(Duration::toSeconds).orElse(0L),
                    life.onTimeout().text(),
                    life.autoResume(),
                    sandbox.createdAt(),
                    sandbox.expiresAt(),
                    sandbox.pausedAt(),
                    sandbox.lastActiveAt(),
                    sandbox.run().toString(),
                    sandbox.origin().map(ForkedFrom::of),
                    sandbox.end().map(Sandbox.End::at),
                    sandbox.end().map(end -> end.reason().text()),
                    sandbox.end().map(Sandbox.End::detail),
                    sandbox.main().map(main -> main.id().toString()),
                    sandbox.end().map(Sandbox.End::exitCode).orElseGet(OptionalInt::empty));
        }
    }

    record RunView(
            String runId,
            String sandboxId,
            String how,
            Optional<String> snapshotIn,
            Instant startedAt,
            Optional<Instant> endedAt,
            Optional<String> endReason,
            Optional<String> endDetail,
            Optional<String> snapshotOut) {

        static RunView of(Run run) {
            return new RunView(
                    run.id().toString(),
                    run.sandboxId().toString(),
                    run.how().text(),
                    run.from().map(SnapshotId::toString),
                    run.startedAt(),
                    run.end().map(Run.End::at),
                    run.end().map(Run.End::reason),
                    run.end().map(Run.End::detail),
                    run.end().flatMap(Run.End::into).map(SnapshotId::toString));
        }
    }

    record HeldContext(
            String contextId,
            String language,
            @JsonProperty("default") boolean isDefault) {
        static HeldContext of(Snapshot.Held held) {
            return new HeldContext(held.id().toString(), held.language().text(), held.isDefault());
        }
    }

    record SnapshotView(
            String snapshotId,
            Optional<String> name,
            String kind,
            String state,
            Optional<String> detail,
            Optional<String> sandboxId,
            String template,
            Optional<String> parentSnapshotId,
            Limits limits,
            List<HeldContext> contexts,
            Map<String, String> labels,
            long sizeBytes,
            double stoppedMs,
            Instant createdAt,
            Optional<Instant> expiresAt) {

        static SnapshotView of(Snapshot snapshot) {
            return new SnapshotView(
                    snapshot.id().toString(),
                    snapshot.name(),
                    snapshot.kind().text(),
                    snapshot.state().text(),
                    Optional.of(snapshot.detail()).filter(text -> !text.isEmpty()),
                    snapshot.sandbox().map(SandboxId::toString),
                    snapshot.template(),
                    snapshot.parent().map(SnapshotId::toString),
                    Limits.of(snapshot.limits()),
                    snapshot.contexts().stream().map(HeldContext::of).toList(),
                    snapshot.labels(),
                    snapshot.sizeBytes(),
                    millis(snapshot.stopped()),
                    snapshot.createdAt(),
                    snapshot.expiresAt());
        }
    }

    record ContextView(
            String contextId,
            String sandboxId,
            String language,
            Optional<String> version,
            Optional<String> cwd,
            String state,
            @JsonProperty("default") boolean isDefault,
            int restarts,
            Optional<String> detail,
            Instant createdAt) {
        static ContextView of(SeenContext seen) {
            Context context = seen.context();
            Optional<NodeContext> now = seen.seen();
            return new ContextView(
                    context.id().toString(),
                    context.sandboxId().toString(),
                    context.language().text(),
                    now.map(NodeContext::version).filter(version -> !version.isEmpty()),
                    now.map(NodeContext::cwd)
                            .or(() -> Optional.of(context.cwd()))
                            .filter(cwd -> !cwd.isEmpty()),
                    now.map(n -> n.state().name().toLowerCase(Locale.ROOT)).orElse("gone"),
                    context.isDefault(),
                    now.map(NodeContext::restarts).orElse(0),
                    now.map(NodeContext::detail).filter(detail -> !detail.isEmpty()),
                    context.createdAt());
        }
    }

    static double millis(Duration duration) {
        long micros = duration.toNanos() / 1000;
        return micros / 1000.0;
    }
}
