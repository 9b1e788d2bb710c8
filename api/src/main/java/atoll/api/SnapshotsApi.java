package atoll.api;

import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.snapshot.CreateSnapshot;
import atoll.core.snapshot.ImportSnapshot;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.snapshot.SnapshotQuery;
import atoll.core.snapshot.Snapshots;
import atoll.core.snapshot.UpdateSnapshot;
import atoll.http.BodyInput;
import atoll.http.ByteStream;
import atoll.http.Exchange;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.Set;

/** {@code /v1/snapshots}: moments of sandboxes. Their files go in and out piece by piece, however large they are. */
final class SnapshotsApi {
    private static final Set<String> CREATE = Set.of("kind", "name", "expires_in_seconds", "labels");
    private static final Set<String> UPDATE = Set.of("name", "expires_in_seconds", "labels");
    private static final String BYTES = "application/octet-stream";
    private static final int PIECE = 256 << 10;

    private final Snapshots snapshots;

    SnapshotsApi(Snapshots snapshots) {
        this.snapshots = snapshots;
    }

    void create(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJsonIfAny(), CREATE);
        var request = new CreateSnapshot(
                fields.text("kind").map(SnapshotsApi::kind).orElse(SnapshotKind.MEMORY),
                fields.text("name"),
                fields.term("expires_in_seconds", false),
                fields.texts("labels"),
                Optional.ofNullable(exchange.header("Idempotency-Key")));
        SandboxId sandbox = SandboxId.parse(exchange.path("sandbox_id"));
        exchange.json(201, Wire.SnapshotView.of(snapshots.create(caller, sandbox, request)));
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var query = new SnapshotQuery(
                Optional.ofNullable(exchange.query("sandbox_id")).map(text -> Ids.sandbox("sandbox_id", text)),
                Optional.ofNullable(exchange.query("kind")).map(SnapshotsApi::kind),
                Optional.ofNullable(exchange.query("name")),
                exchange.queriesBeginningWith("label."),
                Paging.of(exchange));
        exchange.json(200, Wire.Items.of(snapshots.list(caller, query).map(Wire.SnapshotView::of)));
    }

    void get(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, Wire.SnapshotView.of(snapshots.get(caller, id(exchange))));
    }

    void update(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), UPDATE);
        var changes = new UpdateSnapshot(
                fields.text("name"), fields.optionalTexts("labels"), fields.term("expires_in_seconds", false));
        exchange.json(200, Wire.SnapshotView.of(snapshots.update(caller, id(exchange), changes)));
    }

    void delete(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        snapshots.delete(caller, id(exchange));
        exchange.empty(204);
    }

    void exportFile(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        SnapshotId id = id(exchange);
        if (exchange.method().equals("HEAD")) {
            Snapshot snapshot = snapshots.get(caller, id);
            describe(exchange, snapshot.id());
            exchange.responseHeader("Content-Type", BYTES);
            exchange.empty(200);
            return;
        }
        try (InputStream file = snapshots.exportFile(caller, id)) {
            byte[] piece = new byte[PIECE];
            // Until it is known that there is a first piece, an error is an ordinary answer.
            int length = file.read(piece);
            describe(exchange, id);
            ByteStream out = exchange.stream(200, BYTES);
            while (length >= 0) {
                out.write(ByteBuffer.wrap(piece, 0, length));
                length = file.read(piece);
            }
            out.finish();
        }
    }

    private static void describe(Exchange exchange, SnapshotId id) {
        exchange.responseHeader("Content-Disposition", "attachment; filename=\"" + id + ".atoll-snapshot\"");
    }

    void importFile(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var request = new ImportSnapshot(
                Optional.ofNullable(exchange.query("name")), exchange.queriesBeginningWith("label."));
        try (var body = new BodyInput(exchange.bodyStream())) {
            Snapshot imported;
            try {
                imported = snapshots.importFile(caller, request, body);
            } catch (IOException | RuntimeException e) {
                // What the client did is the cause, whatever those in between made of it.
                body.rethrow();
                throw e;
            }
            exchange.json(201, Wire.SnapshotView.of(imported));
        }
    }

    private static SnapshotKind kind(String word) {
        return Choices.of("kind", word, SnapshotKind.values(), SnapshotKind::text);
    }

    private static SnapshotId id(Exchange exchange) {
        return SnapshotId.parse(exchange.path("snapshot_id"));
    }
}
