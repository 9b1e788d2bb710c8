package atoll.compat.e2b;

import atoll.core.Atoll;
import atoll.core.Caller;
import atoll.core.Page;
import atoll.core.PageRequest;
import atoll.core.SandboxId;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.ForkSandbox;
import atoll.core.sandbox.IfExists;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.OnTimeout;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Term;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.template.LimitChanges;
import atoll.core.usage.UsageQuery;
import atoll.core.usage.UsageSample;
import atoll.http.Exchange;
import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.format.DateTimeParseException;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/** {@code /sandboxes}: their life, as the SDKs' control plane has it. */
final class ControlPlane {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final long DEFAULT_SECONDS = 300;
    private static final String ALL_TRAFFIC = "0.0.0.0/0";
    private static final Set<SandboxState> RUNNING =
            EnumSet.of(SandboxState.CREATING, SandboxState.RUNNING, SandboxState.RESUMING);
    private static final Set<SandboxState> PAUSED = EnumSet.of(SandboxState.PAUSING, SandboxState.PAUSED);

    private final Atoll atoll;
    private final E2bTemplates templates;
    private final E2bSettings settings;

    ControlPlane(Atoll atoll, E2bTemplates templates, E2bSettings settings) {
        this.atoll = atoll;
        this.templates = templates;
        this.settings = settings;
    }

    void create(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        JsonNode body = exchange.readJson();
        refuse(body, "mcp", "volumeMounts", "iam");
        String name = Text.required(body, "templateID");
        E2bTemplates.Source source = templates.find(caller, name);
        Network network = Network.of(body);
        var request = new CreateSandbox(
                source.template(),
                Optional.empty(),
                Text.texts(body, "envVars"),
                E2bLabels.of(Text.texts(body, "metadata"), name, network.isPrivate(), network.internet()),
                LimitChanges.NONE,
                Optional.empty(),
                Optional.empty(),
                IfExists.FAIL,
                lifecycle(body),
                source.snapshot(),
                Optional.ofNullable(exchange.header("Idempotency-Key")));
        exchange.json(201, view(caller, atoll.sandboxes().create(caller, request)));
    }

    private static LifecycleChanges lifecycle(JsonNode body) {
        JsonNode resume = body.path("autoResume");
        if (body.has("autoPauseMemory") && !Text.flag(body, "autoPauseMemory") && Text.flag(body, "autoPause")) {
            throw Text.invalid("autoPauseMemory: pausing files only is not supported yet");
        }
        return new LifecycleChanges(
                Optional.of(timeout(body, DEFAULT_SECONDS)),
                Optional.of(Term.NONE),
                Optional.of(Text.flag(body, "autoPause") ? OnTimeout.PAUSE : OnTimeout.KILL),
                Optional.of(resume.isObject() && Text.flag(resume, "enabled")));
    }

    private static Term timeout(JsonNode body, long otherwise) {
        long seconds = Text.number(body, "timeout").orElse(otherwise);
        if (seconds < 1) {
            throw Text.invalid("timeout: " + seconds + " (expected: seconds, at least 1)");
        }
        return Term.of(Duration.ofSeconds(Math.min(seconds, Term.LONGEST.toSeconds())));
    }

    private static void refuse(JsonNode body, String... fields) {
        for (String field : fields) {
            JsonNode value = body.get(field);
            if (value != null && !value.isNull() && !value.isEmpty()) {
                throw Text.invalid(field + " is not supported yet");
            }
        }
    }

    /** What is asked for of the network. Sandboxes reach nothing outside: so that much can be promised, and nothing else. */
    private record Network(boolean isPrivate, boolean internet) {
        static Network of(JsonNode body) {
            JsonNode given = body.get("allow_internet_access");
            boolean internet = given == null || given.isNull() || given.asBoolean();
            JsonNode network = body.path("network");
            for (String field : network.propertyNames()) {
                JsonNode value = network.get(field);
                boolean denyAll = field.equals("denyOut")
                        && value.size() == 1
                        && ALL_TRAFFIC.equals(value.get(0).asString());
                boolean known = denyAll || field.equals("allowPublicTraffic");
                if (!known && !value.isNull() && !(value.isContainer() && value.isEmpty())) {
                    throw Text.invalid("network." + field + " is not supported yet");
                }
            }
            JsonNode open = network.get("allowPublicTraffic");
            boolean denied = network.path("denyOut").size() > 0;
            return new Network(open != null && open.isBoolean() && !open.booleanValue(), internet && !denied);
        }
    }

    void connect(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        JsonNode body = exchange.readJsonIfAny();
        SandboxId id = id(exchange);
        Term timeout = timeout(body, DEFAULT_SECONDS);
        Sandbox sandbox = living(caller, id);
        if (PAUSED.contains(sandbox.state())) {
            if (withoutMemory(body)) {
                reboot(caller, id);
            }
            exchange.json(201, view(caller, atoll.sandboxes().resume(caller, id, Optional.of(timeout))));
            return;
        }
        // Connecting never makes a life shorter.
        Instant wanted = Instant.now().plus(timeout.length().orElseThrow());
        boolean longer = sandbox.expiresAt().map(wanted::isAfter).orElse(false);
        exchange.json(200, view(caller, longer ? atoll.sandboxes().extend(caller, id, timeout) : sandbox));
    }

    private static boolean withoutMemory(JsonNode body) {
        JsonNode memory = body.path("memory");
        return memory.isBoolean() && !memory.booleanValue();
    }

    /** Leaves a paused one with its files alone, whatever it was paused with. */
    private void reboot(Caller caller, SandboxId id) throws InterruptedException {
        Sandbox running = atoll.sandboxes().resume(caller, id, Optional.empty());
        assert running.state() == SandboxState.RUNNING;
        Sandbox paused = atoll.sandboxes().pause(caller, id, SnapshotKind.FILES);
        assert paused.pausedIn().isPresent();
    }

    void timeout(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Sandbox extended = atoll.sandboxes()
                .extend(caller, living(caller, id(exchange)).id(), timeout(exchange.readJsonIfAny(), DEFAULT_SECONDS));
        assert extended.expiresAt().isPresent();
        exchange.empty(204);
    }

    void pause(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        JsonNode body = exchange.readJsonIfAny();
        SandboxId id = id(exchange);
        if (PAUSED.contains(living(caller, id).state())) {
            ApiErrors.answer(exchange, 409, "Sandbox " + Text.id(id) + " is paused already");
            return;
        }
        Sandbox paused =
                atoll.sandboxes().pause(caller, id, withoutMemory(body) ? SnapshotKind.FILES : SnapshotKind.MEMORY);
        assert paused.pausedIn().isPresent();
        exchange.empty(204);
    }

    void resume(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        JsonNode body = exchange.readJsonIfAny();
        SandboxId id = id(exchange);
        if (!PAUSED.contains(living(caller, id).state())) {
            ApiErrors.answer(exchange, 409, "Sandbox " + Text.id(id) + " is not paused");
            return;
        }
        exchange.json(
                201, view(caller, atoll.sandboxes().resume(caller, id, Optional.of(timeout(body, DEFAULT_SECONDS)))));
    }

    void fork(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        JsonNode body = exchange.readJsonIfAny();
        Sandbox source = living(caller, id(exchange));
        int count = Math.clamp(Text.number(body, "count").orElse(1L), 0, ForkSandbox.MOST + 1);
        List<Sandbox> made = atoll.forks()
                .fork(
                        caller,
                        source.id(),
                        new ForkSandbox(
                                count,
                                Map.of(),
                                source.labels(),
                                Optional.empty(),
                                new LifecycleChanges(
                                        Optional.of(timeout(body, DEFAULT_SECONDS)),
                                        Optional.empty(),
                                        Optional.empty(),
                                        Optional.empty()),
                                Optional.ofNullable(exchange.header("Idempotency-Key"))));
        ArrayNode all = NODES.arrayNode();
        for (Sandbox one : made) {
            ObjectNode item = NODES.objectNode();
            item.set("sandbox", view(caller, one));
            all.add(item);
        }
        exchange.json(201, all);
    }

    void kill(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        SandboxId id = living(caller, id(exchange)).id();
        Sandbox ended = atoll.sandboxes().delete(caller, id);
        assert ended.end().isPresent();
        exchange.empty(204);
    }

    void get(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Sandbox sandbox = living(caller, id(exchange));
        ObjectNode detail = listed(sandbox);
        detail.put("envdAccessToken", token(caller, sandbox));
        detail.put("domain", settings.domain());
        boolean internet = E2bLabels.hasInternet(sandbox);
        detail.put("allowInternetAccess", internet);
        if (!internet || E2bLabels.isPrivate(sandbox)) {
            ObjectNode network = detail.putObject("network");
            if (!internet) {
                network.putArray("denyOut").add(ALL_TRAFFIC);
            }
            network.put("allowPublicTraffic", !E2bLabels.isPrivate(sandbox));
        }
        detail.putObject("lifecycle")
                .put("onTimeout", sandbox.lifecycle().onTimeout().text())
                .put("autoResume", sandbox.lifecycle().autoResume());
        exchange.json(200, detail);
    }

    /** The first interface: everything at once, running only. */
    void listRunning(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        ArrayNode all = NODES.arrayNode();
        found(caller, RUNNING, metadata(exchange)).forEach(sandbox -> all.add(listed(sandbox)));
        exchange.json(200, all);
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<Sandbox> found = found(caller, states(exchange.query("state")), metadata(exchange));
        String after = exchange.query("startedAfter");
        if (after != null && !after.isEmpty()) {
            Instant from = instant("startedAfter", after);
            found.removeIf(sandbox -> !sandbox.createdAt().isAfter(from));
        }
        String template = exchange.query("template");
        if (template != null && !template.isEmpty()) {
            found.removeIf(sandbox -> !E2bLabels.template(sandbox).equals(template));
        }
        Comparator<Sandbox> order =
                Comparator.comparing(Sandbox::createdAt).thenComparing(sandbox -> Text.id(sandbox.id()));
        found.sort("asc".equals(exchange.query("order")) ? order : order.reversed());
        int limit = (int) exchange.query("limit", 100, 1, 1000);
        int start = start(found, exchange.query("nextToken"));
        List<Sandbox> page = found.subList(start, Math.min(found.size(), start + limit));
        if (start + page.size() < found.size()) {
            exchange.responseHeader("x-next-token", Text.id(page.getLast().id()));
        }
        ArrayNode all = NODES.arrayNode();
        page.forEach(sandbox -> all.add(listed(sandbox)));
        exchange.json(200, all);
    }

    /** After the one that the token names; where that has gone, at the end. */
    private static int start(List<Sandbox> found, @Nullable String token) {
        if (token == null || token.isEmpty()) {
            return 0;
        }
        for (int i = 0; i < found.size(); i++) {
            if (Text.id(found.get(i).id()).equals(token)) {
                return i + 1;
            }
        }
        return found.size();
    }

    private List<Sandbox> found(Caller caller, Set<SandboxState> states, Map<String, String> metadata) {
        return Page.all(page -> atoll.sandboxes()
                .list(caller, new SandboxQuery(states, Optional.empty(), Optional.empty(), metadata, page)));
    }

    private static Set<SandboxState> states(@Nullable String csv) {
        Set<SandboxState> states = EnumSet.noneOf(SandboxState.class);
        if (csv == null || csv.isEmpty() || csv.contains("running")) {
            states.addAll(RUNNING);
        }
        if (csv == null || csv.isEmpty() || csv.contains("paused")) {
            states.addAll(PAUSED);
        }
        return states;
    }

    /** A query parameter that holds a form whose names and values are encoded once more. */
    private static Map<String, String> metadata(Exchange exchange) {
        String form = exchange.query("metadata");
        Map<String, String> metadata = new HashMap<>();
        if (form == null || form.isEmpty()) {
            return metadata;
        }
        for (String pair : form.split("&", -1)) {
            int equals = pair.indexOf('=');
            String name = equals < 0 ? pair : pair.substring(0, equals);
            String value = equals < 0 ? "" : pair.substring(equals + 1);
            metadata.put(decoded(decoded(name)), decoded(decoded(value)));
        }
        return metadata;
    }

    private static String decoded(String text) {
        try {
            return URLDecoder.decode(text, StandardCharsets.UTF_8);
        } catch (IllegalArgumentException e) {
            return text;
        }
    }

    private static Instant instant(String name, String text) {
        try {
            return OffsetDateTime.parse(text.replace(' ', '+')).toInstant();
        } catch (DateTimeParseException e) {
            throw Text.invalid(name + ": '" + text + "' (expected: a time such as 2026-01-01T00:00:00Z)");
        }
    }

    void metrics(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Sandbox sandbox = living(caller, id(exchange));
        Optional<Instant> from = seconds(exchange.query("start"));
        Optional<Instant> to = seconds(exchange.query("end"));
        ArrayNode all = NODES.arrayNode();
        var page = new PageRequest(PageRequest.MAX_LIMIT, Optional.empty());
        for (UsageSample sample : atoll.usage()
                .samples(caller, sandbox.id(), new UsageQuery(from, to, page))
                .items()) {
            all.add(sample(sandbox, sample));
        }
        exchange.json(200, all);
    }

    private static Optional<Instant> seconds(@Nullable String text) {
        if (text == null || text.isEmpty()) {
            return Optional.empty();
        }
        try {
            return Optional.of(Instant.ofEpochSecond(Long.parseLong(text)));
        } catch (NumberFormatException e) {
            throw Text.invalid("start and end: '" + text + "' (expected: seconds since 1970)");
        }
    }

    private static ObjectNode sample(Sandbox sandbox, UsageSample sample) {
        return NODES.objectNode()
                .put("timestamp", Text.time(sample.at()))
                .put("timestampUnix", sample.at().getEpochSecond())
                .put("cpuCount", Sizes.cpus(sandbox.limits()))
                .put("cpuUsedPct", sample.cpuPercent().orElse(0))
                .put("memUsed", sample.memoryBytes())
                .put("memTotal", sample.memoryLimitBytes())
                .put("memCache", 0)
                .put("diskUsed", sample.diskBytes())
                .put("diskTotal", sample.diskLimitBytes());
    }

    /** One that has not ended: to these SDKs, one that has is not there. */
    private Sandbox living(Caller caller, SandboxId id) {
        Sandbox sandbox = atoll.sandboxes().get(caller, id);
        if (sandbox.state() == SandboxState.ENDED) {
            throw Missing.sandbox(Text.id(id));
        }
        return sandbox;
    }

    static SandboxId id(Exchange exchange) {
        return Text.sandbox(exchange.path("sandbox_id"));
    }

    private String token(Caller caller, Sandbox sandbox) {
        return atoll.tokens().token(caller, sandbox.id(), SandboxPlane.ENVD);
    }

    ObjectNode view(Caller caller, Sandbox sandbox) {
        ObjectNode view = NODES.objectNode()
                .put("templateID", E2bLabels.template(sandbox))
                .put("sandboxID", Text.id(sandbox.id()))
                .put("clientID", "atoll")
                .put("envdVersion", E2bApi.ENVD_VERSION)
                .put("envdAccessToken", token(caller, sandbox))
                .put("domain", settings.domain());
        view.put(
                "trafficAccessToken",
                E2bLabels.isPrivate(sandbox) ? atoll.tokens().token(caller, sandbox.id(), SandboxPlane.TRAFFIC) : null);
        return view;
    }

    private static ObjectNode listed(Sandbox sandbox) {
        ObjectNode view = NODES.objectNode()
                .put("templateID", E2bLabels.template(sandbox))
                .put("alias", E2bLabels.template(sandbox))
                .put("sandboxID", Text.id(sandbox.id()))
                .put("clientID", "atoll")
                .put("startedAt", Text.time(sandbox.createdAt()))
                .put("endAt", Text.time(sandbox.expiresAt().orElseGet(() -> endless(sandbox))));
        Sizes.put(view, sandbox.limits())
                .put("state", PAUSED.contains(sandbox.state()) ? "paused" : "running")
                .put("envdVersion", E2bApi.ENVD_VERSION);
        ObjectNode metadata = view.putObject("metadata");
        E2bLabels.metadata(sandbox).forEach(metadata::put);
        return view;
    }

    /** The protocol wants an end; of one that has none, the longest that could be asked for. */
    private static Instant endless(Sandbox sandbox) {
        return sandbox.pausedAt().orElse(sandbox.createdAt()).plus(Term.LONGEST);
    }
}
