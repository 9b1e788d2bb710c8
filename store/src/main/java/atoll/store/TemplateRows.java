package atoll.store;

import atoll.core.BuildId;
import atoll.core.ProjectId;
import atoll.core.template.Build;
import atoll.core.template.StoredRegistry;
import atoll.core.template.StoredTemplate;
import atoll.core.template.TemplateUsage;
import atoll.core.template.TemplateVersion;
import java.sql.SQLException;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Templates, builds and registries as rows. */
final class TemplateRows {
    private static final String ENDED = "state not in ('QUEUED', 'BUILDING')";

    private TemplateRows() {}

    static int save(Sql sql, StoredTemplate t, Optional<TemplateVersion> version) throws SQLException {
        int saved = sql.update(
                "insert into templates (project_id, template_id, current_version, newest_version, created_at,"
                        + " updated_at, deleted_at) values (?, ?, ?, ?, ?, ?, ?)"
                        + " on conflict (project_id, template_id) do update set"
                        + " current_version = excluded.current_version, newest_version = excluded.newest_version,"
                        + " created_at = excluded.created_at, updated_at = excluded.updated_at,"
                        + " deleted_at = excluded.deleted_at",
                t.project(),
                t.id(),
                t.current(),
                t.newest(),
                t.createdAt(),
                t.updatedAt(),
                t.deletedAt());
        if (version.isPresent()) {
            TemplateVersion v = version.get();
            saved += sql.update(
                    "insert into template_versions (project_id, template_id, version, definition, created_at)"
                            + " values (?, ?, ?, ?, ?)",
                    v.project(),
                    v.template(),
                    v.version(),
                    DefinitionJson.write(v.definition()),
                    v.createdAt());
        }
        return saved;
    }

    static int remove(Sql sql, ProjectId project, String template, boolean keepRecord) throws SQLException {
        int removed = 0;
        for (String table : List.of("template_versions", "builds", "template_usage")) {
            removed +=
                    sql.update("delete from " + table + " where project_id = ? and template_id = ?", project, template);
        }
        if (!keepRecord) {
            removed += sql.update("delete from templates where project_id = ? and template_id = ?", project, template);
        }
        return removed;
    }

    static List<StoredTemplate> templates(Sql sql) throws SQLException {
        return sql.query(
                row -> new StoredTemplate(
                        new ProjectId(row.text("project_id")),
                        row.text("template_id"),
                        (int) row.number("current_version"),
                        (int) row.number("newest_version"),
                        row.time("created_at"),
                        row.time("updated_at"),
                        row.optionalTime("deleted_at")),
                "select * from templates order by created_at, template_id");
    }

    static TemplateVersion version(Row row) throws SQLException {
        return new TemplateVersion(
                new ProjectId(row.text("project_id")),
                row.text("template_id"),
                (int) row.number("version"),
                DefinitionJson.read(row.text("definition")),
                row.time("created_at"));
    }

    static Map<Integer, Instant> versionTimes(Sql sql, ProjectId project, String template) throws SQLException {
        Map<Integer, Instant> times = new HashMap<>();
        sql.query(
                        row -> Map.entry((int) row.number("version"), row.time("created_at")),
                        "select version, created_at from template_versions where project_id = ? and template_id = ?",
                        project,
                        template)
                .forEach(entry -> times.put(entry.getKey(), entry.getValue()));
        return times;
    }

    static Map<String, String> images(Sql sql) throws SQLException {
        Map<String, String> images = new HashMap<>();
        sql.query(row -> Map.entry(row.text("image_key"), row.text("digest")), "select * from template_images")
                .forEach(entry -> images.put(entry.getKey(), entry.getValue()));
        return images;
    }

    static Map<String, TemplateUsage> usage(Sql sql, ProjectId project) throws SQLException {
        Map<String, TemplateUsage> usage = new HashMap<>();
        sql.query(
                        row -> Map.entry(
                                row.text("template_id"),
                                new TemplateUsage(row.number("executions"), row.optionalTime("last_used_at"))),
                        "select * from template_usage where project_id = ?",
                        project)
                .forEach(entry -> usage.put(entry.getKey(), entry.getValue()));
        return usage;
    }

    static int save(Sql sql, Build b) throws SQLException {
        return sql.update(
                "insert into builds (build_id, project_id, template_id, version, image_key, state, cause, no_cache,"
                        + " step_number, step_total, step_text, failure_code, failure_message, last_lines,"
                        + " image_digest, created_at, started_at, ended_at)"
                        + " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                        + " on conflict (build_id) do update set state = excluded.state,"
                        + " step_number = excluded.step_number, step_total = excluded.step_total,"
                        + " step_text = excluded.step_text, failure_code = excluded.failure_code,"
                        + " failure_message = excluded.failure_message, last_lines = excluded.last_lines,"
                        + " image_digest = excluded.image_digest, started_at = excluded.started_at,"
                        + " ended_at = excluded.ended_at",
                b.id(),
                b.project(),
                b.template(),
                b.version(),
                b.imageKey(),
                b.state().name(),
                b.cause().name(),
                b.noCache(),
                b.step().number(),
                b.step().total(),
                b.step().text(),
                b.failure().map(Build.Failure::code),
                b.failure().map(Build.Failure::message),
                b.failure().map(Build.Failure::lastLines),
                b.imageDigest(),
                b.createdAt(),
                b.startedAt(),
                b.endedAt());
    }

    static Build build(Row row) throws SQLException {
        Optional<String> code = row.optionalText("failure_code");
        Optional<Build.Failure> failure = code.isEmpty()
                ? Optional.empty()
                : Optional.of(new Build.Failure(code.get(), row.text("failure_message"), row.text("last_lines")));
        return new Build(
                BuildId.parse(row.text("build_id")),
                new ProjectId(row.text("project_id")),
                row.text("template_id"),
                (int) row.number("version"),
                row.text("image_key"),
                Build.State.valueOf(row.text("state")),
                Build.Cause.valueOf(row.text("cause")),
                row.flag("no_cache"),
                new Build.Step((int) row.number("step_number"), (int) row.number("step_total"), row.text("step_text")),
                failure,
                row.optionalText("image_digest"),
                row.time("created_at"),
                row.optionalTime("started_at"),
                row.optionalTime("ended_at"));
    }

    static List<BuildId> removeBuilds(Sql sql, Instant oldest, int keep) throws SQLException {
        List<BuildId> gone = sql.query(
                row -> BuildId.parse(row.text("build_id")),
                "select build_id from builds b where " + ENDED
                        + " and (created_at < ? or (select count(*) from builds n"
                        + " where n.project_id = b.project_id and n.template_id = b.template_id"
                        + " and (n.created_at > b.created_at"
                        + " or (n.created_at = b.created_at and n.build_id > b.build_id))) >= ?)",
                oldest,
                keep);
        for (BuildId id : gone) {
            sql.update("delete from builds where build_id = ?", id);
        }
        return gone;
    }

    static StoredRegistry registry(Row row) throws SQLException {
        return new StoredRegistry(
                new ProjectId(row.text("project_id")),
                row.text("host"),
                row.text("username"),
                row.text("sealed_password"),
                row.time("updated_at"));
    }
}
