package atoll.store;

import atoll.core.Page;
import atoll.core.PageRequest;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * A list, newest first, page by page. A cursor names the last row that was looked at, so what is inserted or removed meanwhile moves nothing; and as the order is that of an index, any page
 * costs what the first one does.
 */
final class Select {
    /** Rows that a search looks at with one statement: PostgreSQL's driver holds all of them at once, and texts may be long. */
    private static final int STEP = 100;
    /** A search ends with what it has found after so many rows, or after so long: whoever wants more asks for the next page. */
    private static final int MOST_SEARCHED = 20_000;

    private static final long SEARCH_NANOS = TimeUnit.MILLISECONDS.toNanos(80);

    private final String table;
    private final String id;
    private final String columns;
    private final List<String> conditions = new ArrayList<>();
    private final List<@Nullable Object> values = new ArrayList<>();

    interface Place<T> {
        Cursor of(T item);
    }

    private record Looked(Cursor at, boolean taken) {}

    Select(String table, String id, String columns) {
        this.table = table;
        this.id = id;
        this.columns = columns;
    }

    Select where(String condition, Object... with) {
        conditions.add(condition);
        values.addAll(List.of(with));
        return this;
    }

    <T> Page<T> page(Sql sql, PageRequest page, Sql.Mapping<T> mapping, Place<T> place) throws SQLException {
        List<T> found = rows(sql, columns, page.cursor().map(Cursor::parse), page.limit() + 1, mapping);
        if (found.size() <= page.limit()) {
            return new Page<>(found, Optional.empty());
        }
        List<T> items = found.subList(0, page.limit());
        return new Page<>(items, Optional.of(place.of(items.getLast()).toString()));
    }

    /** Bounded by its work, not by what it finds: there may be a next page of one that has fewer than were asked for. */
    <T> Page<T> search(Sql sql, PageRequest page, Search<T> search) throws SQLException {
        long begun = System.nanoTime();
        List<T> items = new ArrayList<>();
        Optional<Cursor> at = page.cursor().map(Cursor::parse);
        int looked = 0;
        while (looked < MOST_SEARCHED && (looked == 0 || System.nanoTime() - begun < SEARCH_NANOS)) {
            List<Looked> step = rows(
                    sql,
                    id + ", created_at, " + search.columns(),
                    at,
                    STEP,
                    row -> new Looked(
                            new Cursor(row.time("created_at"), row.text(id)),
                            search.takes().test(row)));
            for (Looked row : step) {
                if (row.taken()) {
                    if (items.size() == page.limit()) {
                        return new Page<>(items, at.map(Cursor::toString));
                    }
                    // One that was removed since is none.
                    sql.first(
                                    search.mapping(),
                                    "select " + search.load() + " from " + table + " where " + id + " = ?",
                                    row.at().id())
                            .ifPresent(items::add);
                }
                at = Optional.of(row.at());
            }
            looked += step.size();
            if (step.size() < STEP) {
                return new Page<>(items, Optional.empty());
            }
        }
        return new Page<>(items, at.map(Cursor::toString));
    }

    private <T> List<T> rows(Sql sql, String wanted, Optional<Cursor> after, int most, Sql.Mapping<T> mapping)
            throws SQLException {
        List<@Nullable Object> all = new ArrayList<>(values);
        after.ifPresent(cursor -> {
            all.add(cursor.createdAt());
            all.add(cursor.id());
        });
        all.add(most);
        return sql.query(
                mapping,
                "select " + wanted + " from " + table + " where " + String.join(" and ", conditions)
                        + (after.isPresent() ? " and (created_at, " + id + ") < (?, ?)" : "")
                        + " order by created_at desc, " + id + " desc limit ?",
                all.toArray());
    }
}
