package atoll.api;

import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.core.event.Event;
import atoll.core.event.EventQuery;
import atoll.core.event.Events;
import atoll.http.Exchange;
import java.io.IOException;
import java.time.Instant;
import java.util.Optional;
import java.util.Set;

/** {@code /v1/events} and a sandbox's own: what happened. */
final class EventsApi {
    private final Events events;

    EventsApi(Events events) {
        this.events = events;
    }

    record EventView(String cursor, Instant at, String kind, String subject, String detail) {
        static EventView of(Event event) {
            return new EventView(
                    Long.toString(event.cursor()), event.at(), event.kind(), event.subject(), event.detail());
        }
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, Wire.Items.of(events.list(caller, query(exchange)).map(EventView::of)));
    }

    void ofSandbox(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        SandboxId id = SandboxId.parse(exchange.path("sandbox_id"));
        exchange.json(
                200, Wire.Items.of(events.ofSandbox(caller, id, query(exchange)).map(EventView::of)));
    }

    private static EventQuery query(Exchange exchange) {
        String order = exchange.query("order");
        String kinds = exchange.query("kind");
        return new EventQuery(
                Optional.ofNullable(exchange.query("subject")),
                kinds == null ? Set.of() : Set.of(kinds.split(",", -1)),
                order == null
                        ? EventQuery.Order.NEWEST_FIRST
                        : Choices.of("order", order, EventQuery.Order.values(), EventsApi::text),
                Paging.of(exchange));
    }

    private static String text(EventQuery.Order order) {
        return switch (order) {
            case NEWEST_FIRST -> "newest";
            case OLDEST_FIRST -> "oldest";
        };
    }
}
