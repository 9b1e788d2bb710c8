package atoll.api;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Sandboxes;
import atoll.core.sandbox.UpdateSandbox;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** {@code /v1/sandboxes}. */
final class SandboxesApi {
    private static final Set<String> CREATE = Set.of("template", "language", "env", "labels", "limits");

    private static final Set<String> UPDATE = Set.of("labels", "limits");

    private final Sandboxes sandboxes;

    SandboxesApi(Sandboxes sandboxes) {
        this.sandboxes = sandboxes;
    }

    void create(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), CREATE);
        var request = new CreateSandbox(
                fields.text("template"),
                fields.text("language"),
                fields.texts("env"),
                fields.texts("labels"),
                fields.limits("limits"),
                Optional.ofNullable(exchange.header("Idempotency-Key")));
        exchange.json(201, Wire.SandboxView.of(sandboxes.create(caller, request)));
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var query = new SandboxQuery(
                state(exchange.query("state")),
                Optional.ofNullable(exchange.query("template")),
                exchange.queriesBeginningWith("label."),
                Paging.of(exchange));
        exchange.json(200, Wire.Items.of(sandboxes.list(caller, query).map(Wire.SandboxView::of)));
    }

    void get(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, Wire.SandboxView.of(sandboxes.get(caller, id(exchange))));
    }

    void update(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), UPDATE);
        var changes = new UpdateSandbox(fields.limits("limits"), fields.optionalTexts("labels"));
        exchange.json(200, Wire.SandboxView.of(sandboxes.update(caller, id(exchange), changes)));
    }

    void delete(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, Wire.SandboxView.of(sandboxes.delete(caller, id(exchange))));
    }

    void contexts(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<Wire.ContextView> contexts = sandboxes.contexts(caller, id(exchange)).stream()
                .map(Wire.ContextView::of)
                .toList();
        exchange.json(200, new Wire.Items<>(contexts, Optional.empty()));
    }

    private static SandboxId id(Exchange exchange) {
        return SandboxId.parse(exchange.path("sandbox_id"));
    }

    private static Optional<SandboxState> state(@Nullable String name) {
        if (name == null) {
            return Optional.empty();
        }
        for (SandboxState state : SandboxState.values()) {
            if (state.text().equals(name)) {
                return Optional.of(state);
            }
        }
        throw AtollException.invalid(
                "state: \"%s\" (expected: creating, running or ended)".formatted(name), "Correct the query parameter.");
    }
}
