package atoll.compat.e2b;

import atoll.core.Atoll;
import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.template.Build;
import atoll.core.template.BuildContext;
import atoll.core.template.BuildEvent;
import atoll.core.template.BuildLog;
import atoll.core.template.LimitChanges;
import atoll.core.template.Limits;
import atoll.core.template.StartCommand;
import atoll.core.template.Template;
import atoll.core.template.TemplateDefinition;
import atoll.core.template.TemplateDraft;
import atoll.core.template.Templates;
import atoll.http.BodyInput;
import atoll.http.Exchange;
import atoll.http.Json;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.SequencedMap;
import java.util.Set;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/**
 * Builds of templates. One is announced first, then its files are uploaded, then its steps come: what was announced waits among the uploads until then. The build's
 * id is a label of the version that it makes.
 */
final class TemplateBuilds {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final String ANNOUNCED = "e2b-build-";
    private static final String FILES = "e2b-files-";
    private static final int MOST_ENTRIES = 100;
    private static final int MOST_ANNOUNCED = 64 << 10;
    private static final Duration READY = Duration.ofMinutes(5);
    private static final Pattern HASH = Pattern.compile("[A-Za-z0-9_-]{1,128}");
    private static final List<String> LEVELS = List.of("debug", "info", "warn", "error");

    private final Atoll atoll;
    private final E2bTemplates known;

    TemplateBuilds(Atoll atoll, E2bTemplates known) {
        this.atoll = atoll;
        this.known = known;
    }

    // Before the build.

    void announce(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        JsonNode body = exchange.readJson();
        List<TemplateName> names = names(body);
        names.forEach(name -> own(caller, name));
        LimitChanges limits = limits(body);
        assert limits.maxProcesses().isEmpty();
        String build = UUID.randomUUID().toString();
        atoll.uploads()
                .put(
                        caller,
                        ANNOUNCED + build,
                        new ByteArrayInputStream(body.toString().getBytes(StandardCharsets.UTF_8)));
        ObjectNode answer = NODES.objectNode()
                .put("templateID", names.getFirst().id())
                .put("buildID", build)
                .put("public", false);
        answer.putArray("names").add(names.getFirst().name());
        ArrayNode tags = answer.putArray("tags");
        names.forEach(name -> tags.add(name.tag()));
        answer.putArray("aliases").add(names.getFirst().name());
        exchange.json(202, answer);
    }

    /** The name with each of its tags; the first is the one that is built. */
    private static List<TemplateName> names(JsonNode body) {
        String given = Text.text(body, "name")
                .or(() -> Text.text(body, "alias"))
                .filter(name -> !name.isEmpty())
                .orElseThrow(() -> Text.invalid("name is missing"));
        TemplateName first = TemplateName.parse(given);
        Set<TemplateName> names = new LinkedHashSet<>();
        if (given.contains(":") || body.path("tags").isEmpty()) {
            names.add(first);
        }
        body.path("tags").forEach(tag -> names.add(first.withTag(tag.asString())));
        return List.copyOf(names);
    }

    private static LimitChanges limits(JsonNode body) {
        long cpus = Text.number(body, "cpuCount").orElse(0L);
        long memory = Text.number(body, "memoryMB").orElse(0L);
        long disk = Text.number(body, "minFreeDiskMb").orElse(0L) << 20;
        if (cpus < 0 || cpus > 1024 || memory < 0 || memory > 1 << 24) {
            throw Text.invalid("cpuCount and memoryMB: " + cpus + " and " + memory + " (expected: at least 1)");
        }
        return new LimitChanges(
                memory == 0 ? OptionalLong.empty() : OptionalLong.of(memory << 20),
                cpus == 0 ? OptionalInt.empty() : OptionalInt.of((int) cpus * 1000),
                disk > Limits.DEFAULT.diskBytes() ? OptionalLong.of(disk) : OptionalLong.empty(),
                OptionalInt.empty(),
                OptionalInt.empty());
    }

    /** Where the files of a step go. Whoever has that address may put them there, and needs no key. */
    void uploadLink(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        String hash = exchange.path("hash");
        if (!HASH.matcher(hash).matches()) {
            throw Text.invalid("hash: '" + hash + "' (expected: letters and digits)");
        }
        String ticket = atoll.uploads().ticket(caller, FILES + hash);
        String scheme = "https".equalsIgnoreCase(exchange.header("X-Forwarded-Proto")) ? "https" : "http";
        exchange.json(
                201,
                NODES.objectNode()
                        .put("present", atoll.uploads().has(caller, FILES + hash))
                        .put("url", scheme + "://" + exchange.authority() + E2bApi.PREFIX + "/uploads/" + ticket));
    }

    void upload(Exchange exchange) throws IOException, InterruptedException {
        try (var body = new BodyInput(exchange.bodyStream())) {
            try {
                atoll.uploads().putByTicket(exchange.path("ticket"), body);
            } catch (IOException | RuntimeException e) {
                body.rethrow();
                throw e;
            }
        }
        exchange.empty(200);
    }

    // The build.

    void start(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        JsonNode build = exchange.readJson();
        String id = exchange.path("build");
        JsonNode announced = announced(caller, id).orElseThrow(() -> missing(id));
        List<TemplateName> names = names(announced);
        TemplateSteps.Compiled compiled = compiled(caller, build);
        Optional<BuildContext> context = context(caller, compiled);
        Optional<StartCommand> start = startCommand(build);
        Optional<Template> first = Optional.empty();
        for (TemplateName name : names) {
            Templates.Detail made = save(
                    caller,
                    name,
                    id,
                    draft -> draft.name(name.name())
                            .image("")
                            .dockerfile(compiled.dockerfile())
                            .context(context)
                            .start(start)
                            .limits(limits(announced)));
            first = first.or(() -> Optional.of(made.summary().template()));
        }
        Template template = first.orElseThrow();
        Build begun = atoll.templates().build(caller, template.id(), Optional.of(template.version()), isForced(build));
        assert begun.template().equals(template.id());
        exchange.empty(202);
    }

    private Optional<JsonNode> announced(Caller caller, String build) throws IOException {
        Optional<InputStream> kept = atoll.uploads().open(caller, ANNOUNCED + build);
        if (kept.isEmpty()) {
            return Optional.empty();
        }
        try (InputStream in = kept.get()) {
            byte[] text = in.readNBytes(MOST_ANNOUNCED);
            return Optional.of(Json.parse(text, text.length));
        }
    }

    private static boolean isForced(JsonNode build) {
        boolean forced = Text.flag(build, "force");
        for (JsonNode step : build.path("steps")) {
            forced |= Text.flag(step, "force");
        }
        return forced;
    }

    private TemplateSteps.Compiled compiled(Caller caller, JsonNode build) {
        String image = Text.text(build, "fromImage").orElse("");
        String template = Text.text(build, "fromTemplate").orElse("");
        if (image.isEmpty() == template.isEmpty()) {
            throw Text.invalid("fromImage and fromTemplate: both or neither (expected: one of the two)");
        }
        if (!image.isEmpty()) {
            openRegistry(caller, image, build.path("fromImageRegistry"));
            return TemplateSteps.ofImage(image, build);
        }
        String base = known.find(caller, template)
                .template()
                .orElseThrow(
                        () -> Text.invalid("fromTemplate: '" + template + "' is a snapshot (expected: a template)"));
        TemplateDefinition definition = definition(caller, atoll.templates().get(caller, base));
        String user = definition.dockerfile().isEmpty()
                ? definition.user()
                : TemplateSteps.userAtEnd(definition.dockerfile());
        boolean atHome = definition.recipe().isPresent() && definition.workdir().isEmpty();
        return TemplateSteps.ofTemplate(base, user.isEmpty() ? "user" : user, atHome, build);
    }

    private TemplateDefinition definition(Caller caller, Template template) {
        return atoll.templates()
                .detail(caller, template.id(), Optional.of(template.version()))
                .definition();
    }

    /** What opens a registry is kept by the installation for all builds. */
    private void openRegistry(Caller caller, String image, JsonNode registry) {
        if (!registry.isObject()) {
            return;
        }
        String type = Text.text(registry, "type").orElse("registry");
        if (!type.equals("registry")) {
            throw Text.invalid("fromImageRegistry: '" + type
                    + "' is not supported yet (expected: registry, with a username and a password)");
        }
        int slash = image.indexOf('/');
        String host = slash > 0 ? image.substring(0, slash) : "";
        boolean isHost = host.contains(".") || host.contains(":") || host.equals("localhost");
        atoll.registries()
                .put(
                        caller,
                        isHost ? host : "docker.io",
                        Text.required(registry, "username"),
                        Text.required(registry, "password"));
    }

    private Optional<BuildContext> context(Caller caller, TemplateSteps.Compiled compiled) throws IOException {
        if (compiled.uploads().isEmpty()) {
            return Optional.empty();
        }
        SequencedMap<String, String> names = new LinkedHashMap<>();
        compiled.uploads().forEach((folder, hash) -> names.put(folder, FILES + hash));
        return Optional.of(atoll.uploads().context(caller, names));
    }

    private static Optional<StartCommand> startCommand(JsonNode build) {
        return Text.text(build, "startCmd")
                .filter(command -> !command.isBlank())
                .map(command -> new StartCommand(
                        command,
                        new StartCommand.Ready(
                                Text.text(build, "readyCmd")
                                        .filter(ready -> !ready.isBlank())
                                        .<StartCommand.Check>map(StartCommand.Check.Command::new)
                                        .orElseGet(StartCommand.Check.Started::new),
                                READY)));
    }

    /** Writes a template of this protocol's, a new one or a new version. */
    private Templates.Detail save(Caller caller, TemplateName name, String build, Consumer<TemplateDraft> changes) {
        Consumer<TemplateDraft> all = draft -> {
            changes.accept(draft);
            draft.labels(Map.of(E2bLabels.NAME, name.name(), E2bLabels.TAG, name.tag(), E2bLabels.BUILD, build));
        };
        if (own(caller, name).isPresent()) {
            return atoll.templates().update(caller, name.id(), all);
        }
        TemplateDraft draft = new TemplateDraft();
        all.accept(draft);
        return atoll.templates().create(caller, name.id(), draft.definition());
    }

    /** The template of that name; {@code CONFLICT} if it is not one of this protocol's. */
    private Optional<Template> own(Caller caller, TemplateName name) {
        Optional<Template> there = atoll.templates().list(caller).stream()
                .filter(template -> template.id().equals(name.id()))
                .findFirst();
        if (E2bSettings.isReserved(name.name())
                || there.filter(template -> !isTagged(template, name)).isPresent()) {
            throw new AtollException(
                    ErrorCode.CONFLICT,
                    "template '" + name.id() + "' is one of the installation's own",
                    "",
                    "Choose another name.");
        }
        return there;
    }

    static boolean isTagged(Template template, TemplateName name) {
        return name.name().equals(template.labels().get(E2bLabels.NAME))
                && name.tag().equals(template.labels().get(E2bLabels.TAG));
    }

    // What became of it.

    void status(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        String id = exchange.path("template");
        String build = exchange.path("build");
        ObjectNode answer = NODES.objectNode().put("templateID", id).put("buildID", build);
        answer.putArray("logs");
        Optional<Template> version = version(caller, id, build);
        if (version.isEmpty()) {
            if (announced(caller, build).isEmpty()) {
                throw missing(build);
            }
            answer.put("status", "waiting").putArray("logEntries");
            exchange.json(200, answer);
            return;
        }
        Optional<Build> found = build(caller, version.get());
        answer.put("status", found.map(TemplateBuilds::text).orElse("waiting"));
        ArrayNode entries = answer.putArray("logEntries");
        if (found.isPresent()) {
            String dockerfile = definition(caller, version.get()).dockerfile();
            page(exchange, entries(caller, found.get(), dockerfile)).forEach(entries::add);
            failure(found.get(), dockerfile).ifPresent(reason -> answer.set("reason", reason));
        }
        exchange.json(200, answer);
    }

    /** The log alone, from its beginning or from an offset. */
    void logs(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        String build = exchange.path("build");
        Template version = version(caller, exchange.path("template"), build).orElseThrow(() -> missing(build));
        ArrayNode entries = NODES.arrayNode();
        Optional<Build> found = build(caller, version);
        if (found.isPresent()) {
            page(
                            exchange,
                            entries(
                                    caller,
                                    found.get(),
                                    definition(caller, version).dockerfile()))
                    .forEach(entries::add);
        }
        exchange.json(200, NODES.objectNode().set("logs", entries));
    }

    private static List<ObjectNode> page(Exchange exchange, List<ObjectNode> entries) {
        int least = LEVELS.indexOf(String.valueOf(exchange.query("level")).toLowerCase(Locale.ROOT));
        List<ObjectNode> shown = entries.stream()
                .filter(entry -> LEVELS.indexOf(entry.get("level").stringValue()) >= least)
                .toList();
        int offset = (int) exchange.query("logsOffset", 0, 0, Integer.MAX_VALUE);
        int limit = (int) exchange.query("limit", MOST_ENTRIES, 1, MOST_ENTRIES);
        int from = Math.min(offset, shown.size());
        return shown.subList(from, Math.min(shown.size(), from + limit));
    }

    private static String text(Build build) {
        return switch (build.state()) {
            case QUEUED -> "waiting";
            case BUILDING -> "building";
            case READY -> "ready";
            case FAILED, CANCELLED -> "error";
        };
    }

    private Optional<Template> version(Caller caller, String template, String build) {
        try {
            return atoll.templates().versions(caller, known.id(caller, template)).stream()
                    .map(Templates.Version::template)
                    .filter(version -> build.equals(version.labels().get(E2bLabels.BUILD)))
                    .findFirst();
        } catch (AtollException e) {
            if (e.code() == ErrorCode.TEMPLATE_NOT_FOUND) {
                return Optional.empty();
            }
            throw e;
        }
    }

    /** The newest that makes this version, or another one that is made in the same way. */
    private Optional<Build> build(Caller caller, Template version) {
        List<Build> all = atoll.templates().builds(caller, version.id());
        return all.stream()
                .filter(build -> build.version() == version.version())
                .findFirst()
                .or(() -> all.stream()
                        .filter(build -> build.imageKey().equals(version.imageKey()))
                        .findFirst());
    }

    /** Whole lines; of a build that goes on, the last one only once it has ended. */
    private List<ObjectNode> entries(Caller caller, Build build, String dockerfile) throws InterruptedException {
        var lines = new Lines(build.startedAt().orElse(build.createdAt()));
        try (BuildLog log = atoll.templates().log(caller, build.template(), build.id(), false)) {
            while (!log.isOver()) {
                Optional<BuildEvent> event = log.next(Duration.ZERO);
                if (event.isEmpty()) {
                    continue;
                }
                switch (event.get()) {
                    case BuildEvent.Step step -> {
                        lines.end();
                        lines.step = TemplateSteps.stepOf(dockerfile, step.number());
                        lines.add(
                                "debug",
                                "[%d/%d] %s%s"
                                        .formatted(
                                                step.number(),
                                                step.total(),
                                                step.cached() ? "CACHED " : "",
                                                step.text()));
                    }
                    case BuildEvent.Log text -> lines.text(text);
                    case BuildEvent.Done _ -> lines.end();
                    case BuildEvent.Progress _ -> {}
                }
            }
        }
        return lines.entries;
    }

    /** Puts what comes in pieces together. */
    private static final class Lines {
        private final List<ObjectNode> entries = new ArrayList<>();
        private final Map<Boolean, StringBuilder> begun = new HashMap<>();
        private final Instant at;
        private String step = "base";

        Lines(Instant at) {
            this.at = at;
        }

        void add(String level, String message) {
            entries.add(NODES.objectNode()
                    .put("timestamp", Text.time(at))
                    .put("level", level)
                    .put("message", message)
                    .put("step", step));
        }

        void text(BuildEvent.Log log) {
            StringBuilder line = begun.computeIfAbsent(log.stderr(), _ -> new StringBuilder());
            for (char c : log.text().toCharArray()) {
                if (c == '\n') {
                    add(log.stderr() ? "warn" : "info", line.toString());
                    line.setLength(0);
                } else if (c != '\r') {
                    line.append(c);
                }
            }
        }

        void end() {
            begun.forEach((stderr, line) -> {
                if (!line.isEmpty()) {
                    add(stderr ? "warn" : "info", line.toString());
                    line.setLength(0);
                }
            });
        }
    }

    private static Optional<ObjectNode> failure(Build build, String dockerfile) {
        if (!text(build).equals("error")) {
            return Optional.empty();
        }
        String message = build.failure()
                .map(why -> why.lastLines().isBlank() ? why.message() : why.message() + "\n" + why.lastLines())
                .orElse("The build was " + build.state().text() + ".");
        return Optional.of(NODES.objectNode()
                .put("message", message)
                .put("step", TemplateSteps.stepOf(dockerfile, build.step().number())));
    }

    private static AtollException missing(String build) {
        return new AtollException(ErrorCode.BUILD_NOT_FOUND, "build '" + build + "' not found", "", "");
    }

    // Tags.

    void assignTags(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        JsonNode body = exchange.readJson();
        TemplateName target = TemplateName.parse(Text.required(body, "target"));
        Template from = own(caller, target).orElseThrow(() -> E2bTemplates.missing(Text.required(body, "target")));
        TemplateDefinition definition = definition(caller, from);
        String build = from.labels().getOrDefault(E2bLabels.BUILD, new UUID(0, 0).toString());
        ArrayNode tags = NODES.arrayNode();
        List<TemplateName> wanted = new ArrayList<>();
        body.path("tags").forEach(tag -> wanted.add(target.withTag(tag.asString())));
        wanted.forEach(name -> own(caller, name));
        for (TemplateName name : wanted) {
            Templates.Detail made = save(
                    caller,
                    name,
                    build,
                    draft -> draft.name(definition.name())
                            .image(definition.image())
                            .dockerfile(definition.dockerfile())
                            .context(definition.context())
                            .start(definition.start())
                            .limits(definition.limits()));
            tags.add(made.summary().template().labels().get(E2bLabels.TAG));
        }
        exchange.json(201, NODES.objectNode().put("buildID", build).set("tags", tags));
    }

    void removeTags(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        JsonNode body = exchange.readJson();
        TemplateName of = TemplateName.parse(Text.required(body, "name"));
        List<TemplateName> names = new ArrayList<>();
        body.path("tags").forEach(tag -> names.add(of.withTag(tag.asString())));
        for (TemplateName name : names) {
            own(caller, name).ifPresent(template -> atoll.templates().delete(caller, template.id()));
        }
        exchange.empty(204);
    }

    /** Two addresses that no pattern tells apart: {@code aliases/NAME} and {@code NAME/tags}. */
    void part(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        String first = exchange.path("template");
        String second = exchange.path("part");
        if (first.equals("aliases")) {
            E2bTemplates.Source found = known.find(caller, second);
            exchange.json(
                    200,
                    NODES.objectNode()
                            .put(
                                    "templateID",
                                    found.template()
                                            .orElseGet(() -> found.snapshot()
                                                    .orElseThrow()
                                                    .toString()))
                            .put("public", false));
        } else if (second.equals("tags")) {
            tags(exchange, caller, first);
        } else {
            throw E2bTemplates.missing(first + "/" + second);
        }
    }

    private void tags(Exchange exchange, Caller caller, String asked) throws IOException, InterruptedException {
        List<Templates.Summary> all = ofName(caller, asked);
        if (all.isEmpty()) {
            throw E2bTemplates.missing(asked);
        }
        ArrayNode tags = NODES.arrayNode();
        for (Templates.Summary summary : all) {
            Map<String, String> labels = summary.template().labels();
            tags.add(NODES.objectNode()
                    .put("tag", labels.get(E2bLabels.TAG))
                    .put("buildID", labels.get(E2bLabels.BUILD))
                    .put("createdAt", Text.time(summary.updatedAt())));
        }
        exchange.json(200, tags);
    }

    /** All tags of the template that a name or an id of one of them stands for. */
    private List<Templates.Summary> ofName(Caller caller, String nameOrId) {
        List<Templates.Summary> own = atoll.templates().summaries(caller).stream()
                .filter(summary -> summary.template().labels().containsKey(E2bLabels.NAME))
                .toList();
        String id = known.id(caller, nameOrId);
        Optional<String> name = own.stream()
                .map(Templates.Summary::template)
                .filter(template -> template.id().equals(id)
                        || nameOrId.equals(template.labels().get(E2bLabels.NAME)))
                .map(template -> template.labels().get(E2bLabels.NAME))
                .findFirst();
        return own.stream()
                .filter(summary -> name.isPresent()
                        && name.get().equals(summary.template().labels().get(E2bLabels.NAME)))
                .toList();
    }

    /** Deletes a template of this protocol's, with all of its tags; false if there is none of that name. */
    boolean delete(Caller caller, String nameOrId) {
        List<Templates.Summary> all = ofName(caller, nameOrId);
        all.forEach(one -> atoll.templates().delete(caller, one.template().id()));
        return !all.isEmpty();
    }

    // Lists, for the command line.

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        ArrayNode all = NODES.arrayNode();
        atoll.templates().summaries(caller).forEach(summary -> all.add(view(summary)));
        exchange.json(200, all);
    }

    void get(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        String asked = exchange.path("template");
        String id = known.find(caller, asked).template().orElseThrow(() -> E2bTemplates.missing(asked));
        ObjectNode view =
                view(atoll.templates().detail(caller, id, Optional.empty()).summary());
        ArrayNode builds = view.putArray("builds");
        for (Templates.Version version : atoll.templates().versions(caller, id)) {
            Optional<Build> build = build(caller, version.template());
            ObjectNode one = NODES.objectNode()
                    .put("buildID", buildId(version.template()))
                    .put(
                            "status",
                            build.map(TemplateBuilds::text)
                                    .orElse(version.imageDigest().isPresent() ? "ready" : "waiting"))
                    .put("createdAt", Text.time(version.createdAt()))
                    .put("updatedAt", Text.time(build.flatMap(Build::endedAt).orElse(version.createdAt())));
            Sizes.put(one, version.template().limits()).put("envdVersion", E2bApi.ENVD_VERSION);
            build.flatMap(Build::endedAt).ifPresent(at -> one.put("finishedAt", Text.time(at)));
            builds.add(one);
        }
        exchange.json(200, view);
    }

    private static String buildId(Template template) {
        return template.labels()
                .getOrDefault(
                        E2bLabels.BUILD,
                        UUID.nameUUIDFromBytes(
                                        (template.id() + "@" + template.version()).getBytes(StandardCharsets.UTF_8))
                                .toString());
    }

    private static ObjectNode view(Templates.Summary summary) {
        Template template = summary.template();
        ObjectNode view = NODES.objectNode().put("templateID", template.id()).put("buildID", buildId(template));
        Sizes.put(view, template.limits())
                .put("public", false)
                .put("createdAt", Text.time(summary.createdAt()))
                .put("updatedAt", Text.time(summary.updatedAt()))
                .put("spawnCount", summary.usage().executions())
                .put("buildCount", summary.newest())
                .put("envdVersion", E2bApi.ENVD_VERSION)
                .put(
                        "buildStatus",
                        switch (summary.build()) {
                            case NONE, QUEUED -> "waiting";
                            case BUILDING -> "building";
                            case READY -> "ready";
                            case FAILED, CANCELLED -> "error";
                        });
        view.putNull("createdBy");
        view.putNull("lastSpawnedAt");
        String name = template.labels().getOrDefault(E2bLabels.NAME, template.id());
        view.putArray("aliases").add(name);
        view.putArray("names").add(name);
        return view;
    }
}
