package atoll.api;

import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.core.sandbox.CreateMain;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Sandboxes;
import atoll.core.sandbox.UpdateSandbox;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.Optional;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** {@code /v1/sandboxes}. */
final class SandboxesApi {
    private static final Set<String> CREATE = Set.of("template", "language", "env", "labels", "limits", "main");
    private static final Set<String> MAIN = main();

    private static final Set<String> UPDATE = Set.of("labels", "limits");

    private final Sandboxes sandboxes;

    SandboxesApi(Sandboxes sandboxes) {
        this.sandboxes = sandboxes;
    }

    private static Set<String> main() {
        var names = new HashSet<String>(StartProcessArguments.NAMES);
        names.add("ends_sandbox");
        return Set.copyOf(names);
    }

    private static CreateMain main(Fields fields) {
        return new CreateMain(StartProcessArguments.of(fields, Optional.empty()), fields.flag("ends_sandbox", true));
    }

    void create(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), CREATE);
        var request = new CreateSandbox(
                fields.text("template"),
                fields.text("language"),
                fields.texts("env"),
                fields.texts("labels"),
                fields.limits("limits"),
                fields.object("main", MAIN).map(SandboxesApi::main),
                Optional.ofNullable(exchange.header("Idempotency-Key")));
        exchange.json(201, Wire.SandboxView.of(sandboxes.create(caller, request)));
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var query = new SandboxQuery(
                states(exchange.query("state")),
                Optional.ofNullable(exchange.query("template")),
                Optional.ofNullable(exchange.query("name")),
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

    private static SandboxId id(Exchange exchange) {
        return SandboxId.parse(exchange.path("sandbox_id"));
    }

    private static Set<SandboxState> states(@Nullable String names) {
        var states = EnumSet.noneOf(SandboxState.class);
        if (names != null) {
            for (String name : names.split(",", -1)) {
                states.add(Choices.of("state", name, SandboxState.values(), SandboxState::text));
            }
        }
        return states;
    }
}
