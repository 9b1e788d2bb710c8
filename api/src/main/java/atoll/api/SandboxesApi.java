package atoll.api;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.sandbox.CreateMain;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.Created;
import atoll.core.sandbox.ForkSandbox;
import atoll.core.sandbox.Forks;
import atoll.core.sandbox.IfExists;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Sandboxes;
import atoll.core.sandbox.Term;
import atoll.core.sandbox.UpdateSandbox;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.snapshot.Snapshots;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** {@code /v1/sandboxes}: sandboxes and their life. */
final class SandboxesApi {
    private static final Set<String> CREATE = names(
            LifecycleArguments.NAMES,
            "template",
            "language",
            "env",
            "labels",
            "limits",
            "main",
            "name",
            "if_exists",
            "snapshot");
    private static final Set<String> MAIN = names(StartProcessArguments.NAMES, "ends_sandbox");
    private static final Set<String> UPDATE = names(LifecycleArguments.NAMES, "labels", "limits", "name");
    private static final Set<String> FORK = names(LifecycleArguments.NAMES, "count", "env", "labels", "name");

    private final Sandboxes sandboxes;
    private final Forks forks;
    private final Snapshots snapshots;

    SandboxesApi(Sandboxes sandboxes, Forks forks, Snapshots snapshots) {
        this.sandboxes = sandboxes;
        this.forks = forks;
        this.snapshots = snapshots;
    }

    private static Set<String> names(List<String> some, String... more) {
        var names = new HashSet<String>(some);
        names.addAll(List.of(more));
        return Set.copyOf(names);
    }

    private static CreateMain main(Fields fields) {
        return new CreateMain(StartProcessArguments.of(fields, Optional.empty()), fields.flag("ends_sandbox", true));
    }

    void create(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJsonIfAny(), CREATE);
        var request = new CreateSandbox(
                fields.text("template"),
                fields.text("language"),
                fields.texts("env"),
                fields.texts("labels"),
                fields.limits("limits"),
                fields.object("main", MAIN).map(SandboxesApi::main),
                fields.text("name"),
                fields.text("if_exists")
                        .map(word -> Choices.of("if_exists", word, IfExists.values(), SandboxesApi::text))
                        .orElse(IfExists.FAIL),
                LifecycleArguments.of(fields),
                fields.text("snapshot").map(text -> Ids.snapshot("snapshot", text)),
                Optional.ofNullable(exchange.header("Idempotency-Key")));
        Created created = sandboxes.createOrGet(caller, request);
        exchange.json(created.got() ? 200 : 201, Wire.SandboxView.of(created.sandbox()));
    }

    private static String text(IfExists choice) {
        return choice.name().toLowerCase(Locale.ROOT);
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var query = new SandboxQuery(
                states(exchange.query("state")),
                Optional.ofNullable(exchange.query("template")),
                Optional.ofNullable(exchange.query("name")),
                exchange.queriesBeginningWith("label."),
                Paging.searched(exchange),
                Paging.of(exchange));
        exchange.json(200, Wire.Items.of(sandboxes.list(caller, query).map(Wire.SandboxView::of)));
    }

    void get(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        answer(exchange, sandboxes.get(caller, id(exchange)));
    }

    void update(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), UPDATE);
        var changes = new UpdateSandbox(
                fields.limits("limits"),
                fields.optionalTexts("labels"),
                fields.text("name"),
                LifecycleArguments.of(fields));
        answer(exchange, sandboxes.update(caller, id(exchange), changes));
    }

    void delete(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        answer(exchange, sandboxes.delete(caller, id(exchange)));
    }

    void pause(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJsonIfAny(), Set.of("keep"));
        SnapshotKind keep = fields.text("keep")
                .map(word -> Choices.of("keep", word, SnapshotKind.values(), SnapshotKind::text))
                .orElse(SnapshotKind.MEMORY);
        answer(exchange, sandboxes.pause(caller, id(exchange), keep));
    }

    void resume(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJsonIfAny(), Set.of("lifetime_seconds"));
        answer(exchange, sandboxes.resume(caller, id(exchange), fields.term("lifetime_seconds", false)));
    }

    void extend(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), Set.of("seconds"));
        Term lifetime = fields.term("seconds", false)
                .orElseThrow(() -> AtollException.invalid(
                        "seconds is missing (expected: a number, or null for no end)", "Send seconds in the request."));
        answer(exchange, sandboxes.extend(caller, id(exchange), lifetime));
    }

    void fork(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJsonIfAny(), FORK);
        var request = new ForkSandbox(
                fields.wholeNumber("count", 1, 1, ForkSandbox.MOST),
                fields.texts("env"),
                fields.texts("labels"),
                fields.text("name"),
                LifecycleArguments.of(fields),
                Optional.ofNullable(exchange.header("Idempotency-Key")));
        List<Wire.SandboxView> copies = forks.fork(caller, id(exchange), request).stream()
                .map(Wire.SandboxView::of)
                .toList();
        exchange.json(201, new Wire.Items<>(copies, Optional.empty()));
    }

    void rollback(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), Set.of("snapshot_id"));
        SnapshotId snapshot = Ids.snapshot("snapshot_id", fields.requiredText("snapshot_id"));
        answer(exchange, snapshots.rollback(caller, id(exchange), snapshot));
    }

    void runs(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<Wire.RunView> runs = sandboxes.runs(caller, id(exchange)).stream()
                .map(Wire.RunView::of)
                .toList();
        exchange.json(200, new Wire.Items<>(runs, Optional.empty()));
    }

    private static void answer(Exchange exchange, Sandbox sandbox) throws IOException, InterruptedException {
        exchange.json(200, Wire.SandboxView.of(sandbox));
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
