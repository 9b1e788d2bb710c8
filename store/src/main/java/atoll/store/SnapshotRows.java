package atoll.store;

import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.snapshot.SnapshotState;
import java.sql.SQLException;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Snapshots as rows. */
final class SnapshotRows {
    private SnapshotRows() {}

    static int insert(Sql sql, Snapshot s) throws SQLException {
        int inserted = sql.update(
                "insert into snapshots (snapshot_id, project_id, name, kind, sandbox_id, template, template_version,"
                        + " parent_snapshot_id,"
                        + " memory_bytes, cpu_millis, disk_bytes, max_processes, max_open_files, env, contexts,"
                        + " labels, state, size_bytes, stopped_us, created_at, expires_at, detail)"
                        + " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                s.id(),
                s.project(),
                s.name(),
                s.kind().name(),
                s.sandbox(),
                s.template(),
                s.templateVersion(),
                s.parent(),
                s.limits().memoryBytes(),
                s.limits().cpuMillis(),
                s.limits().diskBytes(),
                s.limits().maxProcesses(),
                s.limits().maxOpenFiles(),
                Json.ofMap(s.env()),
                Json.ofHeld(s.contexts()),
                Json.ofMap(s.labels()),
                s.state().name(),
                s.sizeBytes(),
                micros(s.stopped()),
                s.createdAt(),
                s.expiresAt(),
                s.detail());
        insertLabels(sql, s);
        return inserted;
    }

    private static void insertLabels(Sql sql, Snapshot s) throws SQLException {
        for (Map.Entry<String, String> label : s.labels().entrySet()) {
            sql.update(
                    "insert into snapshot_labels (snapshot_id, project_id, name, value) values (?, ?, ?, ?)",
                    s.id(),
                    s.project(),
                    label.getKey(),
                    label.getValue());
        }
    }

    static int update(Sql sql, Snapshot s) throws SQLException {
        int updated = sql.update(
                "update snapshots set name = ?, labels = ?, state = ?, size_bytes = ?, stopped_us = ?, expires_at = ?,"
                        + " detail = ? where snapshot_id = ?",
                s.name(),
                Json.ofMap(s.labels()),
                s.state().name(),
                s.sizeBytes(),
                micros(s.stopped()),
                s.expiresAt(),
                s.detail(),
                s.id());
        if (updated > 0) {
            sql.update("delete from snapshot_labels where snapshot_id = ?", s.id());
            insertLabels(sql, s);
        }
        return updated;
    }

    static Optional<Snapshot> find(Sql sql, SnapshotId id) throws SQLException {
        return sql.first(SnapshotRows::map, "select * from snapshots where snapshot_id = ?", id);
    }

    static Optional<Snapshot> named(Sql sql, ProjectId project, String name) throws SQLException {
        return sql.first(
                SnapshotRows::map,
                "select * from snapshots where project_id = ? and name = ? and state <> 'LOST'",
                project,
                name);
    }

    static List<Snapshot> live(Sql sql) throws SQLException {
        return sql.query(
                SnapshotRows::map, "select * from snapshots where state <> 'LOST' order by created_at, snapshot_id");
    }

    static int remove(Sql sql, SnapshotId id) throws SQLException {
        return sql.update("delete from snapshots where snapshot_id = ?", id);
    }

    private static long micros(Duration time) {
        return time.dividedBy(ChronoUnit.MICROS.getDuration());
    }

    static Snapshot map(Row row) throws SQLException {
        return new Snapshot(
                SnapshotId.parse(row.text("snapshot_id")),
                new ProjectId(row.text("project_id")),
                row.optionalText("name"),
                SnapshotKind.valueOf(row.text("kind")),
                row.optionalText("sandbox_id").map(SandboxId::parse),
                row.text("template"),
                (int) row.number("template_version"),
                row.optionalText("parent_snapshot_id").map(SnapshotId::parse),
                SandboxRows.limits(row),
                Json.toMap(row.text("env")),
                Json.toHeld(row.text("contexts")),
                Json.toMap(row.text("labels")),
                SnapshotState.valueOf(row.text("state")),
                row.number("size_bytes"),
                Duration.of(row.number("stopped_us"), ChronoUnit.MICROS),
                row.time("created_at"),
                row.optionalTime("expires_at"),
                row.text("detail"));
    }
}
