package atoll.compat.e2b;

import atoll.core.Atoll;
import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.PageRequest;
import atoll.core.SnapshotId;
import atoll.core.snapshot.CreateSnapshot;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.snapshot.SnapshotQuery;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/** Snapshots, which this protocol also takes as templates. Their names are free text: they are kept as a label. */
final class SnapshotsApi {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final String NAME = E2bLabels.NAME;

    private final Atoll atoll;
    private final TemplateBuilds builds;

    SnapshotsApi(Atoll atoll, TemplateBuilds builds) {
        this.atoll = atoll;
        this.builds = builds;
    }

    void create(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        JsonNode body = exchange.readJsonIfAny();
        boolean files = body.has("memory") && !Text.flag(body, "memory");
        Map<String, String> labels =
                Text.text(body, "name").map(name -> Map.of(NAME, name)).orElse(Map.of());
        Snapshot made = atoll.snapshots()
                .create(
                        caller,
                        ControlPlane.id(exchange),
                        new CreateSnapshot(
                                files ? SnapshotKind.FILES : SnapshotKind.MEMORY,
                                Optional.empty(),
                                Optional.empty(),
                                labels,
                                Optional.ofNullable(exchange.header("Idempotency-Key"))));
        exchange.json(201, view(made));
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        String sandbox = exchange.query("sandboxID");
        String name = exchange.query("name");
        String token = exchange.query("nextToken");
        var page = atoll.snapshots()
                .list(
                        caller,
                        new SnapshotQuery(
                                Optional.ofNullable(sandbox)
                                        .filter(id -> !id.isEmpty())
                                        .map(Text::sandbox),
                                Optional.empty(),
                                Optional.empty(),
                                name == null || name.isEmpty() ? Map.of() : Map.of(NAME, name),
                                new PageRequest(
                                        (int) exchange.query("limit", 100, 1, PageRequest.MAX_LIMIT),
                                        Optional.ofNullable(token).filter(text -> !text.isEmpty()))));
        page.next().ifPresent(next -> exchange.responseHeader("x-next-token", next));
        ArrayNode all = NODES.arrayNode();
        page.items().forEach(snapshot -> all.add(view(snapshot)));
        exchange.json(200, all);
    }

    /** A template that was made by this protocol, by id or name, or a snapshot; the installation's own templates are not deleted by it. */
    void delete(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        String name = exchange.path("template");
        if (name.equals("tags")) {
            builds.removeTags(exchange, caller);
            return;
        }
        if (name.startsWith(SnapshotId.PREFIX) || !builds.delete(caller, name)) {
            atoll.snapshots().delete(caller, find(caller, name));
        }
        exchange.empty(204);
    }

    private SnapshotId find(Caller caller, String name) {
        if (name.startsWith(SnapshotId.PREFIX)) {
            try {
                return SnapshotId.parse(name);
            } catch (AtollException e) {
                // A name may look so too.
                assert e.code() == ErrorCode.SNAPSHOT_NOT_FOUND;
            }
        }
        return atoll
                .snapshots()
                .list(
                        caller,
                        new SnapshotQuery(
                                Optional.empty(),
                                Optional.empty(),
                                Optional.empty(),
                                Map.of(NAME, name),
                                new PageRequest(1, Optional.empty())))
                .items()
                .stream()
                .map(Snapshot::id)
                .findFirst()
                .orElseThrow(() ->
                        new AtollException(ErrorCode.SNAPSHOT_NOT_FOUND, "template '" + name + "' not found", "", ""));
    }

    private static ObjectNode view(Snapshot snapshot) {
        ObjectNode view = NODES.objectNode().put("snapshotID", snapshot.id().toString());
        ArrayNode names = view.putArray("names");
        String name = snapshot.labels().get(NAME);
        if (name != null) {
            names.add(name);
        }
        snapshot.sandbox().ifPresent(source -> view.put("sandboxID", Text.id(source)));
        return view.put("createdAt", Text.time(snapshot.createdAt()));
    }
}
