package atoll.store;

import atoll.core.ContextId;
import atoll.core.Language;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.sandbox.Context;
import java.sql.SQLException;
import java.util.List;

/** Contexts as rows. */
final class ContextRows {
    private ContextRows() {}

    static int insert(Sql sql, Context context) throws SQLException {
        return sql.update(
                "insert into contexts (context_id, project_id, sandbox_id, language, is_default, cwd, env, origin_id,"
                        + " created_at) values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                context.id(),
                context.project(),
                context.sandboxId(),
                context.language(),
                context.isDefault(),
                context.cwd(),
                Json.ofMap(context.env()),
                context.origin(),
                context.createdAt());
    }

    /** Those of a sandbox that were not closed, the oldest first. */
    static List<Context> of(Sql sql, SandboxId sandbox) throws SQLException {
        return sql.query(
                row -> new Context(
                        ContextId.parse(row.text("context_id")),
                        new ProjectId(row.text("project_id")),
                        SandboxId.parse(row.text("sandbox_id")),
                        Language.parse(row.text("language")),
                        row.flag("is_default"),
                        row.text("cwd"),
                        Json.toMap(row.text("env")),
                        row.optionalText("origin_id").map(ContextId::parse),
                        row.time("created_at")),
                "select * from contexts where sandbox_id = ? and closed_at is null order by created_at, context_id",
                sandbox);
    }
}
