package atoll.store;

import atoll.core.ProcessId;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.execution.ExecutionOutcome.MemoryUse;
import atoll.core.process.ProcessEnd;
import atoll.core.process.ProcessRecord;
import atoll.core.process.ProcessRecord.Progress;
import atoll.core.process.TerminalSize;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/** Processes as rows. */
final class ProcessRows {
    private static final List<String> COLUMNS = List.of(
            "process_id",
            "project_id",
            "sandbox_id",
            "argv",
            "command",
            "cwd",
            "user_name",
            "has_stdin",
            "timeout_ms",
            "terminal_columns",
            "terminal_rows",
            "labels",
            "is_main",
            "created_at",
            "running",
            "pid",
            "started_at",
            "stdout_bytes",
            "stderr_bytes",
            "stdin_offset",
            "stdin_closed",
            "end_reason",
            "exit_code",
            "exit_signal",
            "detail",
            "memory_limit_bytes",
            "memory_peak_bytes",
            "ended_at",
            "duration_nanos");

    private static final String SAVE = "insert into processes (" + String.join(", ", COLUMNS) + ") values ("
            + COLUMNS.stream().map(_ -> "?").collect(Collectors.joining(", "))
            + ") on conflict (process_id) do update set "
            + COLUMNS.stream()
                    .skip(1)
                    .map(column -> column + " = excluded." + column)
                    .collect(Collectors.joining(", "));

    private ProcessRows() {}

    static int save(Sql sql, ProcessRecord p) throws SQLException {
        Optional<ProcessEnd> end = p.end();
        List<@Nullable Object> values = new ArrayList<>(List.of(
                p.id(),
                p.project(),
                p.sandboxId(),
                Json.ofList(p.argv()),
                p.command(),
                p.cwd(),
                p.user(),
                p.stdin(),
                p.timeout().map(Duration::toMillis),
                p.terminal().map(TerminalSize::columns),
                p.terminal().map(TerminalSize::rows),
                Json.ofMap(p.labels()),
                p.main(),
                p.createdAt(),
                p.running(),
                p.pid(),
                p.startedAt(),
                p.progress().stdoutBytes(),
                p.progress().stderrBytes(),
                p.progress().stdinOffset(),
                p.progress().stdinClosed(),
                end.map(how -> how.reason().name()),
                end.map(ProcessEnd::exitCode).orElse(OptionalInt.empty()),
                end.map(ProcessEnd::signal).orElse(OptionalInt.empty()),
                end.map(ProcessEnd::detail),
                end.flatMap(ProcessEnd::memory).map(MemoryUse::limitBytes),
                end.flatMap(ProcessEnd::memory).map(MemoryUse::peakBytes),
                end.map(ProcessEnd::at),
                end.map(how -> how.duration().toNanos())));
        int saved = sql.update(SAVE, values.toArray());
        for (Map.Entry<String, String> label : p.labels().entrySet()) {
            saved += sql.update(
                    "insert into process_labels (process_id, project_id, name, value) values (?, ?, ?, ?)"
                            + " on conflict do nothing",
                    p.id(),
                    p.project(),
                    label.getKey(),
                    label.getValue());
        }
        return saved;
    }

    static int remove(Sql sql, ProcessId id) throws SQLException {
        return sql.update("delete from processes where process_id = ?", id);
    }

    static Optional<ProcessRecord> find(Sql sql, ProcessId id) throws SQLException {
        return sql.first(ProcessRows::map, "select * from processes where process_id = ?", id);
    }

    static List<ProcessRecord> running(Sql sql) throws SQLException {
        return sql.query(ProcessRows::map, "select * from processes where running = 1 order by created_at");
    }

    /** Removes ended ones: those created before, and the oldest above so many. */
    static List<ProcessId> removeEnded(Sql sql, Instant oldest, long keep, int limit) throws SQLException {
        List<ProcessId> ids = new ArrayList<>(sql.query(
                ProcessRows::id,
                "select process_id from processes where running = 0 and created_at < ? order by created_at limit ?",
                oldest,
                limit));
        long there = sql.first(row -> row.number("n"), "select count(*) as n from processes")
                .orElse(0L);
        long above = there - ids.size() - keep;
        if (above > 0 && ids.size() < limit) {
            sql
                    .query(
                            ProcessRows::id,
                            "select process_id from processes where running = 0 order by created_at limit ?",
                            limit)
                    .stream()
                    .filter(id -> !ids.contains(id))
                    .limit(Math.min(above, limit - ids.size()))
                    .forEach(ids::add);
        }
        for (ProcessId id : ids) {
            int removed = remove(sql, id);
            assert removed == 1;
        }
        return List.copyOf(ids);
    }

    private static ProcessId id(Row row) throws SQLException {
        return ProcessId.parse(row.text("process_id"));
    }

    static ProcessRecord map(Row row) throws SQLException {
        OptionalInt columns = row.optionalInt("terminal_columns");
        return new ProcessRecord(
                id(row),
                new ProjectId(row.text("project_id")),
                SandboxId.parse(row.text("sandbox_id")),
                Json.toList(row.text("argv")),
                row.optionalText("command"),
                row.text("cwd"),
                row.text("user_name"),
                row.flag("has_stdin"),
                row.optionalNumber("timeout_ms").map(Duration::ofMillis),
                columns.isPresent()
                        ? Optional.of(new TerminalSize(columns.getAsInt(), (int) row.number("terminal_rows")))
                        : Optional.empty(),
                Json.toMap(row.text("labels")),
                row.flag("is_main"),
                (int) row.number("pid"),
                row.time("created_at"),
                row.optionalTime("started_at"),
                new Progress(
                        row.number("stdout_bytes"),
                        row.number("stderr_bytes"),
                        row.number("stdin_offset"),
                        row.flag("stdin_closed")),
                row.flag("running") ? Optional.empty() : Optional.of(end(row)));
    }

    private static ProcessEnd end(Row row) throws SQLException {
        Optional<Long> limit = row.optionalNumber("memory_limit_bytes");
        return new ProcessEnd(
                ProcessEnd.Reason.valueOf(row.text("end_reason")),
                row.optionalInt("exit_code"),
                row.optionalInt("exit_signal"),
                row.text("detail"),
                limit.isPresent()
                        ? Optional.of(new MemoryUse(limit.get(), row.number("memory_peak_bytes")))
                        : Optional.empty(),
                row.time("ended_at"),
                Duration.ofNanos(row.number("duration_nanos")));
    }
}
