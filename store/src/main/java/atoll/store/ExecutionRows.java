package atoll.store;

import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.execution.CapturedText;
import atoll.core.execution.ExecutionError;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionOutcome.MemoryUse;
import atoll.core.execution.ExecutionQuery;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExitReason;
import atoll.core.text.SearchText;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Executions as rows. */
final class ExecutionRows {
    private static final List<String> COLUMNS = List.of(
            "execution_id",
            "project_id",
            "sandbox_id",
            "context_id",
            "language",
            "code",
            "code_bytes",
            "created_at",
            "running",
            "exit_reason",
            "exit_code",
            "exit_signal",
            "state_kept",
            "detail",
            "output",
            "output_truncated",
            "stdout",
            "stdout_bytes",
            "stdout_truncated",
            "stderr",
            "stderr_bytes",
            "stderr_truncated",
            "results",
            "error_name",
            "error_message",
            "error_traceback",
            "memory_limit_bytes",
            "memory_peak_bytes",
            "started_at",
            "duration_nanos",
            "truncated");

    /** Results are stored with their plain text beside them, so what may be listed takes up to this much. */
    private static final int MOST_RESULTS_LISTED = 16 * ExecutionRecord.LISTED_CHARS;

    private static final String SAVE = "insert into executions (" + String.join(", ", COLUMNS) + ") values ("
            + COLUMNS.stream().map(_ -> "?").collect(Collectors.joining(", "))
            + ") on conflict (execution_id) do update set "
            + COLUMNS.stream()
                    .skip(1)
                    .map(column -> column + " = excluded." + column)
                    .collect(Collectors.joining(", "));

    /** The row of one that runs is made anew at its end, so it needs only the first columns. */
    private static final String SAVE_RUNNING = "insert into executions (" + String.join(", ", COLUMNS.subList(0, 9))
            + ") values (?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing";

    /** Texts of which a list needs only the beginning: the database need not hand out the rest. */
    private static final Set<String> LONG_TEXTS =
            Set.of("code", "output", "stdout", "stderr", "detail", "error_name", "error_message", "error_traceback");

    /** One character more than is listed, so that the cut is noticed. */
    static final String LISTED_COLUMNS = COLUMNS.stream()
            .map(column -> LONG_TEXTS.contains(column)
                    ? "substr(" + column + ", 1, " + (ExecutionRecord.LISTED_CHARS + 1) + ") as " + column
                    : column.equals("results")
                            ? "case when length(results) <= " + MOST_RESULTS_LISTED + " then results end as results"
                            : column)
            .collect(Collectors.joining(", "));

    private ExecutionRows() {}

    static int save(Sql sql, ExecutionRecord e) throws SQLException {
        if (e.outcome().isEmpty()) {
            int inserted = sql.update(SAVE_RUNNING, start(e, true).toArray());
            return Math.max(1, inserted);
        }
        ExecutionOutcome o = e.outcome().get();
        Stream<Object> end = Stream.of(
                o.exitReason().name(),
                o.exitCode(),
                o.signal(),
                o.stateKept(),
                o.detail(),
                o.output().text(),
                o.output().truncated(),
                o.stdout().text(),
                o.stdout().totalBytes(),
                o.stdout().truncated(),
                o.stderr().text(),
                o.stderr().totalBytes(),
                o.stderr().truncated(),
                Json.ofResults(o.results(), o.files()),
                o.error().map(ExecutionError::name),
                o.error().map(ExecutionError::message),
                o.error().map(ExecutionError::traceback),
                o.memory().map(MemoryUse::limitBytes),
                o.memory().map(MemoryUse::peakBytes),
                o.startedAt(),
                o.duration().toNanos(),
                o.truncated());
        return sql.update(SAVE, Stream.concat(start(e, false).stream(), end).toArray());
    }

    private static List<Object> start(ExecutionRecord e, boolean running) {
        return List.of(
                e.id(),
                e.project(),
                e.sandboxId(),
                e.contextId(),
                e.language(),
                e.code(),
                e.codeBytes(),
                e.createdAt(),
                running);
    }

    static Optional<ExecutionRecord> find(Sql sql, ExecutionId id) throws SQLException {
        return sql.first(ExecutionRows::map, "select * from executions where execution_id = ?", id);
    }

    static List<ExecutionRecord> running(Sql sql) throws SQLException {
        return sql.query(ExecutionRows::map, "select * from executions where running = 1 order by created_at");
    }

    static long count(Sql sql) throws SQLException {
        return sql.first(row -> row.number("n"), "select count(*) as n from executions")
                .orElse(0L);
    }

    static List<ExecutionId> endedBefore(Sql sql, Instant oldest, int limit) throws SQLException {
        return sql.query(
                ExecutionRows::id,
                "select execution_id from executions where running = 0 and created_at < ? order by created_at limit ?",
                oldest,
                limit);
    }

    static List<ExecutionId> oldestEnded(Sql sql, int limit) throws SQLException {
        return sql.query(
                ExecutionRows::id,
                "select execution_id from executions where running = 0 order by created_at limit ?",
                limit);
    }

    private static ExecutionId id(Row row) throws SQLException {
        return ExecutionId.parse(row.text("execution_id"));
    }

    /** Among those that a select yields; what is short is looked at first. */
    static Search<ExecutionRecord> search(ExecutionQuery.Wanted wanted) {
        String template = wanted.template().isPresent()
                ? ", (select template from sandboxes s where s.sandbox_id = executions.sandbox_id) as template"
                : "";
        String texts = wanted.text().isPresent() ? ", code, output" : "";
        return new Search<>(
                "language, exit_reason" + template + texts,
                row -> takes(wanted, row),
                LISTED_COLUMNS,
                ExecutionRows::mapListed);
    }

    private static boolean takes(ExecutionQuery.Wanted wanted, Row row) throws SQLException {
        if (wanted.language().isPresent() && !wanted.language().get().text().equals(row.text("language"))) {
            return false;
        }
        if (!wanted.reasons().isEmpty()
                && row.optionalText("exit_reason")
                        .map(ExitReason::valueOf)
                        .filter(wanted.reasons()::contains)
                        .isEmpty()) {
            return false;
        }
        if (wanted.template().isPresent() && !wanted.template().get().equals(row.text("template"))) {
            return false;
        }
        Optional<SearchText> text = wanted.text();
        return text.isEmpty() || text.get().isIn(row.text("code")) || text.get().isIn(row.text("output"));
    }

    static ExecutionRecord mapListed(Row row) throws SQLException {
        return map(row).listed();
    }

    static ExecutionRecord map(Row row) throws SQLException {
        ExecutionId id = id(row);
        SandboxId sandbox = SandboxId.parse(row.text("sandbox_id"));
        ContextId context = ContextId.parse(row.text("context_id"));
        return new ExecutionRecord(
                id,
                new ProjectId(row.text("project_id")),
                sandbox,
                context,
                Language.parse(row.text("language")),
                row.text("code"),
                row.number("code_bytes"),
                row.time("created_at"),
                row.flag("running") ? Optional.empty() : Optional.of(outcome(row, id, sandbox, context)));
    }

    private static ExecutionOutcome outcome(Row row, ExecutionId id, SandboxId sandbox, ContextId context)
            throws SQLException {
        CapturedText stdout = captured(row, "stdout");
        CapturedText stderr = captured(row, "stderr");
        // Left out of a list when they are large.
        Optional<String> results = row.optionalText("results");
        Optional<String> errorName = row.optionalText("error_name");
        Optional<ExecutionError> error = errorName.isEmpty()
                ? Optional.empty()
                : Optional.of(
                        new ExecutionError(errorName.get(), row.text("error_message"), row.text("error_traceback")));
        Optional<MemoryUse> memory = row.optionalText("memory_limit_bytes").isEmpty()
                ? Optional.empty()
                : Optional.of(new MemoryUse(row.number("memory_limit_bytes"), row.number("memory_peak_bytes")));
        return new ExecutionOutcome(
                id,
                sandbox,
                context,
                new CapturedText(
                        row.text("output"), stdout.totalBytes() + stderr.totalBytes(), row.flag("output_truncated")),
                stdout,
                stderr,
                Json.toResults(results.orElse("[]")),
                error,
                ExitReason.valueOf(row.text("exit_reason")),
                row.optionalInt("exit_code"),
                row.optionalInt("exit_signal"),
                row.flag("state_kept"),
                row.text("detail"),
                memory,
                row.time("started_at"),
                Duration.ofNanos(row.number("duration_nanos")),
                row.flag("truncated") || results.isEmpty(),
                results.flatMap(Json::toFiles));
    }

    private static CapturedText captured(Row row, String stream) throws SQLException {
        return new CapturedText(row.text(stream), row.number(stream + "_bytes"), row.flag(stream + "_truncated"));
    }
}
