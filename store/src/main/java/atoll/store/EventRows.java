package atoll.store;

import atoll.core.Page;
import atoll.core.ProjectId;
import atoll.core.event.Event;
import atoll.core.event.EventQuery;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;

/** Events as rows. */
final class EventRows {
    private EventRows() {}

    static Page<Event> page(Sql sql, ProjectId project, EventQuery query) throws SQLException {
        boolean forward = query.order() == EventQuery.Order.OLDEST_FIRST;
        List<Object> values = new ArrayList<>(List.of(project));
        StringBuilder select = new StringBuilder("select * from events where project_id = ?");
        query.subject().ifPresent(subject -> {
            select.append(" and subject = ?");
            values.add(subject);
        });
        query.after().ifPresent(after -> {
            select.append(forward ? " and event_id > ?" : " and event_id < ?");
            values.add(after);
        });
        if (!query.kinds().isEmpty()) {
            // As many marks as there are kinds, of which a query takes a few.
            String marks = String.join(", ", Collections.nCopies(query.kinds().size(), "?"));
            select.append(" and kind in (").append(marks).append(")");
            query.kinds().stream().sorted().forEach(values::add);
        }
        select.append(forward ? " order by event_id limit ?" : " order by event_id desc limit ?");
        int limit = query.page().limit();
        values.add(limit + 1);
        List<Event> found = sql.query(EventRows::map, select.toString(), values.toArray());
        return found.size() <= limit
                ? new Page<>(found, Optional.empty())
                : new Page<>(
                        found.subList(0, limit),
                        Optional.of(Long.toString(found.get(limit - 1).cursor())));
    }

    private static Event map(Row row) throws SQLException {
        return new Event(
                row.number("event_id"),
                new ProjectId(row.text("project_id")),
                row.time("at"),
                row.text("kind"),
                row.text("subject"),
                row.text("detail"));
    }
}
