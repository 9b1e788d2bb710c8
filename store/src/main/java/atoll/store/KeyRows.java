package atoll.store;

import atoll.core.ApiKey;
import atoll.core.KeyId;
import atoll.core.ProjectId;
import atoll.core.Scope;
import java.sql.SQLException;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** API keys as rows. */
final class KeyRows {
    private KeyRows() {}

    static List<ApiKey> of(Sql sql, ProjectId project) throws SQLException {
        return sql.query(
                KeyRows::map,
                "select * from api_keys where project_id = ? order by created_at desc, key_id desc",
                project);
    }

    private static ApiKey map(Row row) throws SQLException {
        return new ApiKey(
                KeyId.parse(row.text("key_id")),
                new ProjectId(row.text("project_id")),
                row.text("name"),
                row.text("shown_prefix"),
                scopes(row),
                row.time("created_at"),
                row.optionalTime("expires_at"),
                row.optionalTime("last_used_at"));
    }

    static Set<Scope> scopes(Row row) throws SQLException {
        return Stream.of(row.text("scopes").split(",", -1))
                .filter(scope -> !scope.isEmpty())
                .map(Scope::valueOf)
                .collect(Collectors.toSet());
    }
}
