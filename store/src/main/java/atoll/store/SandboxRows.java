package atoll.store;

import atoll.core.BoxId;
import atoll.core.ProcessId;
import atoll.core.ProjectId;
import atoll.core.RunId;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.Lifecycle;
import atoll.core.sandbox.MainProcess;
import atoll.core.sandbox.OnTimeout;
import atoll.core.sandbox.Run;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.template.Limits;
import atoll.core.text.SearchText;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/** Sandboxes and their runs as rows. */
final class SandboxRows {
    private SandboxRows() {}

    static void insert(Sql sql, Sandbox s, Run run) throws SQLException {
        Optional<Sandbox.End> end = s.end();
        sql.update(
                "insert into sandboxes (sandbox_id, project_id, template, template_version, state, memory_bytes,"
                        + " cpu_millis, disk_bytes, max_processes, max_open_files, labels, box_id, run_id, main_process_id,"
                        + " main_ends_sandbox, name, env, lifetime_ms, idle_timeout_ms, on_timeout, auto_resume,"
                        + " expires_at, paused_at, last_active_at, paused_in, is_copy, origin_sandbox_id,"
                        + " origin_snapshot_id, created_at, ended_at, end_reason, end_detail, exit_code)"
                        + " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"
                        + " ?, ?, ?, ?, ?, ?)",
                s.id(),
                s.project(),
                s.template(),
                s.templateVersion(),
                s.state().name(),
                s.limits().memoryBytes(),
                s.limits().cpuMillis(),
                s.limits().diskBytes(),
                s.limits().maxProcesses(),
                s.limits().maxOpenFiles(),
                Json.ofMap(s.labels()),
                s.box(),
                s.run(),
                s.main().map(MainProcess::id),
                s.main().map(MainProcess::endsSandbox).orElse(false),
                s.name(),
                Json.ofMap(s.env()),
                s.lifecycle().lifetime().map(Duration::toMillis),
                s.lifecycle().idleTimeout().map(Duration::toMillis),
                s.lifecycle().onTimeout().name(),
                s.lifecycle().autoResume(),
                s.expiresAt(),
                s.pausedAt(),
                s.lastActiveAt(),
                s.pausedIn(),
                s.origin().isPresent(),
                s.origin().flatMap(Sandbox.Origin::sandbox),
                s.origin().flatMap(Sandbox.Origin::snapshot),
                s.createdAt(),
                end.map(Sandbox.End::at),
                end.map(how -> how.reason().name()),
                end.map(Sandbox.End::detail),
                end.map(Sandbox.End::exitCode).orElse(OptionalInt.empty()));
        insertLabels(sql, s);
        save(sql, run);
    }

    private static void insertLabels(Sql sql, Sandbox s) throws SQLException {
        for (Map.Entry<String, String> label : s.labels().entrySet()) {
            sql.update(
                    "insert into sandbox_labels (sandbox_id, project_id, name, value) values (?, ?, ?, ?)",
                    s.id(),
                    s.project(),
                    label.getKey(),
                    label.getValue());
        }
    }

    /** Where it is in its life. */
    static int update(Sql sql, Sandbox s, List<Run> runs) throws SQLException {
        Optional<Sandbox.End> end = s.end();
        int updated = sql.update(
                "update sandboxes set state = ?, box_id = ?, run_id = ?, expires_at = ?, paused_at = ?,"
                        + " last_active_at = ?, paused_in = ?, ended_at = ?, end_reason = ?, end_detail = ?,"
                        + " exit_code = ? where sandbox_id = ? and state <> 'ENDED'",
                s.state().name(),
                s.box(),
                s.run(),
                s.expiresAt(),
                s.pausedAt(),
                s.lastActiveAt(),
                s.pausedIn(),
                end.map(Sandbox.End::at),
                end.map(how -> how.reason().name()),
                end.map(Sandbox.End::detail),
                end.map(Sandbox.End::exitCode).orElse(OptionalInt.empty()),
                s.id());
        if (updated == 0) {
            return 0;
        }
        for (Run run : runs) {
            save(sql, run);
        }
        if (end.isPresent()) {
            updated += sql.update(
                    "update runs set ended_at = ?, end_reason = ?, end_detail = ? where run_id = ?"
                            + " and ended_at is null",
                    end.get().at(),
                    end.get().reason().name(),
                    end.get().detail(),
                    s.run());
        }
        return updated;
    }

    /** What callers may change. */
    static int revise(Sql sql, Sandbox s) throws SQLException {
        int updated = sql.update(
                "update sandboxes set memory_bytes = ?, cpu_millis = ?, disk_bytes = ?, max_processes = ?,"
                        + " max_open_files = ?, labels = ?, name = ?, lifetime_ms = ?, idle_timeout_ms = ?,"
                        + " on_timeout = ?, auto_resume = ?, expires_at = ? where sandbox_id = ?"
                        + " and state <> 'ENDED'",
                s.limits().memoryBytes(),
                s.limits().cpuMillis(),
                s.limits().diskBytes(),
                s.limits().maxProcesses(),
                s.limits().maxOpenFiles(),
                Json.ofMap(s.labels()),
                s.name(),
                s.lifecycle().lifetime().map(Duration::toMillis),
                s.lifecycle().idleTimeout().map(Duration::toMillis),
                s.lifecycle().onTimeout().name(),
                s.lifecycle().autoResume(),
                s.expiresAt(),
                s.id());
        if (updated > 0) {
            sql.update("delete from sandbox_labels where sandbox_id = ?", s.id());
            insertLabels(sql, s);
        }
        return updated;
    }

    private static void save(Sql sql, Run run) throws SQLException {
        sql.update(
                "insert into runs (run_id, project_id, sandbox_id, how, snapshot_from, started_at, ended_at,"
                        + " end_reason, end_detail, snapshot_into) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                        + " on conflict (run_id) do update set ended_at = excluded.ended_at,"
                        + " end_reason = excluded.end_reason, end_detail = excluded.end_detail,"
                        + " snapshot_into = excluded.snapshot_into",
                run.id(),
                run.project(),
                run.sandboxId(),
                run.how().name(),
                run.from(),
                run.startedAt(),
                run.end().map(Run.End::at),
                run.end().map(end -> end.reason().toUpperCase(Locale.ROOT)),
                run.end().map(Run.End::detail),
                run.end().flatMap(Run.End::into));
    }

    static List<Run> runs(Sql sql, SandboxId sandbox) throws SQLException {
        return sql.query(
                SandboxRows::mapRun, "select * from runs where sandbox_id = ? order by started_at, run_id", sandbox);
    }

    private static Run mapRun(Row row) throws SQLException {
        Optional<Instant> endedAt = row.optionalTime("ended_at");
        Optional<Run.End> end = endedAt.isEmpty()
                ? Optional.empty()
                : Optional.of(new Run.End(
                        row.text("end_reason").toLowerCase(Locale.ROOT),
                        row.text("end_detail"),
                        endedAt.get(),
                        row.optionalText("snapshot_into").map(SnapshotId::parse)));
        return new Run(
                RunId.parse(row.text("run_id")),
                new ProjectId(row.text("project_id")),
                SandboxId.parse(row.text("sandbox_id")),
                Run.How.valueOf(row.text("how")),
                row.optionalText("snapshot_from").map(SnapshotId::parse),
                row.time("started_at"),
                end);
    }

    /** Of those that a select yields, where the text is in the id, name, template, a label, or why it ended. */
    static Search<Sandbox> search(SearchText text) {
        return new Search<>(
                "name, template, labels, end_reason, end_detail", row -> isIn(row, text), "*", SandboxRows::map);
    }

    private static boolean isIn(Row row, SearchText text) throws SQLException {
        return text.isIn(row.text("sandbox_id"))
                || text.isIn(row.text("name"))
                || text.isIn(row.text("template"))
                || Json.toMap(row.text("labels")).entrySet().stream()
                        .anyMatch(label -> text.isIn(label.getKey() + "=" + label.getValue()))
                || row.optionalText("end_reason")
                        .map(reason -> text.isIn(EndReason.valueOf(reason).text()))
                        .orElse(false)
                || text.isIn(row.text("end_detail"));
    }

    static Sandbox map(Row row) throws SQLException {
        boolean mainEnds = row.flag("main_ends_sandbox");
        Instant createdAt = row.time("created_at");
        return new Sandbox(
                SandboxId.parse(row.text("sandbox_id")),
                new ProjectId(row.text("project_id")),
                row.text("template"),
                (int) row.number("template_version"),
                SandboxState.valueOf(row.text("state")),
                limits(row),
                Json.toMap(row.text("labels")),
                BoxId.parse(row.text("box_id")),
                RunId.parse(row.text("run_id")),
                row.optionalText("main_process_id").map(id -> new MainProcess(ProcessId.parse(id), mainEnds)),
                row.optionalText("name"),
                Json.toMap(row.text("env")),
                new Lifecycle(
                        row.optionalNumber("lifetime_ms").map(Duration::ofMillis),
                        row.optionalNumber("idle_timeout_ms").map(Duration::ofMillis),
                        OnTimeout.valueOf(row.text("on_timeout")),
                        row.flag("auto_resume")),
                new Sandbox.Times(
                        row.optionalTime("expires_at"),
                        row.optionalTime("paused_at"),
                        row.optionalTime("last_active_at").orElse(createdAt)),
                row.optionalText("paused_in").map(SnapshotId::parse),
                origin(row),
                createdAt,
                end(row));
    }

    static Limits limits(Row row) throws SQLException {
        return new Limits(
                row.number("memory_bytes"),
                (int) row.number("cpu_millis"),
                row.number("disk_bytes"),
                (int) row.number("max_processes"),
                (int) row.number("max_open_files"));
    }

    private static Optional<Sandbox.Origin> origin(Row row) throws SQLException {
        return row.flag("is_copy")
                ? Optional.of(new Sandbox.Origin(
                        row.optionalText("origin_sandbox_id").map(SandboxId::parse),
                        row.optionalText("origin_snapshot_id").map(SnapshotId::parse)))
                : Optional.empty();
    }

    private static Optional<Sandbox.End> end(Row row) throws SQLException {
        Optional<Instant> endedAt = row.optionalTime("ended_at");
        return endedAt.isEmpty()
                ? Optional.empty()
                : Optional.of(new Sandbox.End(
                        EndReason.valueOf(row.text("end_reason")),
                        row.text("end_detail"),
                        endedAt.get(),
                        row.optionalInt("exit_code")));
    }
}
