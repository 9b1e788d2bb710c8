package atoll.compat.e2b;

import atoll.core.Atoll;
import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.Page;
import atoll.core.PageRequest;
import atoll.core.SandboxId;
import atoll.core.event.Event;
import atoll.core.event.EventQuery;
import atoll.http.Exchange;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/** {@code /events/sandboxes}: what happened to sandboxes, read by their users; pages are counted, not pointed at. */
final class EventsApi {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final String LIFECYCLE = "sandbox.lifecycle.";
    /** The names of this protocol by core's. */
    private static final Map<String, String> TYPES = Map.of(
            "sandbox.started", LIFECYCLE + "created",
            "sandbox.updated", LIFECYCLE + "updated",
            "sandbox.paused", LIFECYCLE + "paused",
            "sandbox.resumed", LIFECYCLE + "resumed",
            "sandbox.ended", LIFECYCLE + "killed");

    private static final int MOST_SKIPPED = 10_000;

    private final Atoll atoll;

    EventsApi(Atoll atoll) {
        this.atoll = atoll;
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        answer(exchange, caller, query -> atoll.events().list(caller, query));
    }

    void ofSandbox(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        SandboxId id = ControlPlane.id(exchange);
        answer(exchange, caller, query -> atoll.events().ofSandbox(caller, id, query));
    }

    private void answer(Exchange exchange, Caller caller, Function<EventQuery, Page<Event>> pages)
            throws IOException, InterruptedException {
        int limit = (int) exchange.query("limit", 10, 1, 100);
        int offset = (int) exchange.query("offset", 0, 0, MOST_SKIPPED);
        EventQuery.Order order = "true".equals(exchange.query("orderAsc"))
                ? EventQuery.Order.OLDEST_FIRST
                : EventQuery.Order.NEWEST_FIRST;
        Set<String> kinds = kinds(exchange.query("types"));
        List<Event> found = new ArrayList<>();
        Optional<String> next = Optional.empty();
        do {
            Page<Event> page = pages.apply(
                    new EventQuery(Optional.empty(), kinds, order, new PageRequest(page(offset + limit), next)));
            found.addAll(page.items());
            next = page.next();
        } while (next.isPresent() && found.size() < offset + limit);
        Map<String, String> templates = new HashMap<>();
        ArrayNode all = NODES.arrayNode();
        found.stream().skip(offset).limit(limit).forEach(event -> {
            String template = templates.computeIfAbsent(event.subject(), sandbox -> template(caller, sandbox));
            all.add(view(event, template));
        });
        exchange.json(200, all);
    }

    private static int page(int wanted) {
        return Math.min(wanted, PageRequest.MAX_LIMIT);
    }

    private static Set<String> kinds(@Nullable String types) {
        if (types == null || types.isEmpty()) {
            return TYPES.keySet();
        }
        Set<String> kinds = new HashSet<>();
        for (String type : types.split(",", -1)) {
            TYPES.forEach((kind, name) -> {
                if (name.equals(type.strip())) {
                    kinds.add(kind);
                }
            });
        }
        if (kinds.isEmpty()) {
            throw Text.invalid("types: '" + types + "' (expected: some of "
                    + String.join(", ", TYPES.values().stream().sorted().toList()) + ")");
        }
        return kinds;
    }

    private String template(Caller caller, String sandbox) {
        try {
            return E2bLabels.template(atoll.sandboxes().get(caller, SandboxId.parse(sandbox)));
        } catch (AtollException e) {
            // Its record was removed before what happened to it.
            assert e.code() == ErrorCode.SANDBOX_NOT_FOUND;
            return "";
        }
    }

    private static ObjectNode view(Event event, String template) {
        String name = event.project() + "/" + event.cursor();
        return NODES.objectNode()
                .put("version", "v1")
                .put(
                        "id",
                        UUID.nameUUIDFromBytes(name.getBytes(StandardCharsets.UTF_8))
                                .toString())
                .put("type", TYPES.get(event.kind()))
                .putNull("eventData")
                .put("sandboxId", Text.id(SandboxId.parse(event.subject())))
                .put("sandboxTemplateId", template)
                .putNull("sandboxBuildId")
                .putNull("sandboxExecutionId")
                .put("sandboxTeamId", event.project().toString())
                .put("timestamp", Text.time(event.at()));
    }
}
