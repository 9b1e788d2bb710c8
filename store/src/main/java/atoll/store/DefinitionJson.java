package atoll.store;

import atoll.core.Language;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.OnTimeout;
import atoll.core.sandbox.Term;
import atoll.core.template.BuildContext;
import atoll.core.template.LimitChanges;
import atoll.core.template.Packages;
import atoll.core.template.StartCommand;
import atoll.core.template.TemplateDefinition;
import atoll.core.template.TemplateFile;
import atoll.core.template.TemplatePort;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/** The definition of a template's version as JSON. What is empty is left out. */
final class DefinitionJson {
    private static final JsonMapper MAPPER = JsonMapper.builder().build();

    private DefinitionJson() {}

    static String write(TemplateDefinition d) {
        ObjectNode json = MAPPER.createObjectNode();
        put(json, "name", d.name());
        put(json, "description", d.description());
        put(json, "image", d.image());
        d.recipe().ifPresent(recipe -> json.put("recipe", recipe));
        put(json, "dockerfile", d.dockerfile());
        ObjectNode packages = json.putObject("packages");
        put(packages, "apt", d.packages().apt());
        put(packages, "pip", d.packages().pip());
        put(packages, "npm", d.packages().npm());
        put(packages, "go", d.packages().go());
        ArrayNode files = json.putArray("files");
        for (TemplateFile file : d.files()) {
            files.addObject()
                    .put("path", file.path())
                    .put("base64", file.base64())
                    .put("mode", file.mode())
                    .put("owner", file.owner());
        }
        put(json, "commands", d.commands());
        d.context()
                .ifPresent(context -> json.putObject("context")
                        .put("digest", context.digest())
                        .put("bytes", context.bytes()));
        put(json, "env", d.env());
        put(json, "user", d.user());
        put(json, "workdir", d.workdir());
        d.start().ifPresent(start -> start(json.putObject("start"), start));
        d.defaultLanguage().ifPresent(language -> json.put("default_language", language.text()));
        limits(json.putObject("limits"), d.limits());
        d.timeout().ifPresent(time -> json.put("timeout_ms", time.toMillis()));
        lifecycle(json.putObject("lifecycle"), d.lifecycle());
        d.maxLifetime().ifPresent(time -> json.put("max_lifetime_ms", time.toMillis()));
        d.poolDepth().ifPresent(depth -> json.put("pool_depth", depth));
        d.poolMaxDepth().ifPresent(depth -> json.put("pool_max_depth", depth));
        ArrayNode ports = json.putArray("ports");
        d.ports().forEach(port -> ports.addObject().put("port", port.port()).put("name", port.name()));
        put(json, "runtime", d.runtime());
        put(json, "labels", d.labels());
        return MAPPER.writeValueAsString(json);
    }

    private static void put(ObjectNode json, String name, String text) {
        if (!text.isEmpty()) {
            json.put(name, text);
        }
    }

    private static void put(ObjectNode json, String name, List<String> texts) {
        if (!texts.isEmpty()) {
            ArrayNode array = json.putArray(name);
            texts.forEach(array::add);
        }
    }

    private static void put(ObjectNode json, String name, Map<String, String> texts) {
        if (!texts.isEmpty()) {
            ObjectNode object = json.putObject(name);
            new TreeMap<>(texts).forEach(object::put);
        }
    }

    private static void start(ObjectNode json, StartCommand start) {
        json.put("command", start.command());
        json.put("timeout_ms", start.ready().timeout().toMillis());
        switch (start.ready().check()) {
            case StartCommand.Check.Started _ -> {}
            case StartCommand.Check.Port(int port) -> json.put("port", port);
            case StartCommand.Check.Http(int port, String path) ->
                json.put("port", port).put("path", path);
            case StartCommand.Check.Command(String command) -> json.put("ready_command", command);
        }
    }

    private static void limits(ObjectNode json, LimitChanges limits) {
        limits.memoryBytes().ifPresent(value -> json.put("memory_bytes", value));
        limits.cpuMillis().ifPresent(value -> json.put("cpu_millis", value));
        limits.diskBytes().ifPresent(value -> json.put("disk_bytes", value));
        limits.maxProcesses().ifPresent(value -> json.put("max_processes", value));
        limits.maxOpenFiles().ifPresent(value -> json.put("max_open_files", value));
    }

    private static void lifecycle(ObjectNode json, LifecycleChanges changes) {
        changes.lifetime().ifPresent(term -> json.put("lifetime_s", seconds(term)));
        changes.idleTimeout().ifPresent(term -> json.put("idle_s", seconds(term)));
        changes.onTimeout().ifPresent(choice -> json.put("on_timeout", choice.name()));
        changes.autoResume().ifPresent(choice -> json.put("auto_resume", choice));
    }

    /** 0 is no bound. */
    private static long seconds(Term term) {
        return term.length().map(Duration::toSeconds).orElse(0L);
    }

    static TemplateDefinition read(String text) {
        JsonNode json = MAPPER.readTree(text);
        JsonNode packages = json.path("packages");
        return new TemplateDefinition(
                text(json, "name"),
                text(json, "description"),
                text(json, "image"),
                some(json.get("recipe"), JsonNode::asString),
                text(json, "dockerfile"),
                new Packages(
                        texts(packages, "apt"), texts(packages, "pip"), texts(packages, "npm"), texts(packages, "go")),
                files(json.path("files")),
                texts(json, "commands"),
                some(
                        json.get("context"),
                        context -> new BuildContext(
                                text(context, "digest"), context.path("bytes").asLong())),
                map(json, "env"),
                text(json, "user"),
                text(json, "workdir"),
                some(json.get("start"), DefinitionJson::start),
                some(json.get("default_language"), language -> Language.parse(language.asString())),
                limits(json.path("limits")),
                some(json.get("timeout_ms"), time -> Duration.ofMillis(time.asLong())),
                lifecycle(json.path("lifecycle")),
                some(json.get("max_lifetime_ms"), time -> Duration.ofMillis(time.asLong())),
                number(json, "pool_depth"),
                number(json, "pool_max_depth"),
                ports(json.path("ports")),
                text(json, "runtime"),
                map(json, "labels"));
    }

    private static <T> Optional<T> some(@Nullable JsonNode node, Function<JsonNode, T> mapping) {
        return node == null ? Optional.empty() : Optional.of(mapping.apply(node));
    }

    private static String text(JsonNode json, String name) {
        JsonNode value = json.get(name);
        return value == null ? "" : value.asString();
    }

    private static List<String> texts(JsonNode json, String name) {
        List<String> texts = new ArrayList<>();
        json.path(name).forEach(item -> texts.add(item.asString()));
        return texts;
    }

    private static Map<String, String> map(JsonNode json, String name) {
        Map<String, String> map = new TreeMap<>();
        json.path(name)
                .properties()
                .forEach(entry -> map.put(entry.getKey(), entry.getValue().asString()));
        return map;
    }

    private static OptionalInt number(JsonNode json, String name) {
        JsonNode value = json.get(name);
        return value == null ? OptionalInt.empty() : OptionalInt.of(value.asInt());
    }

    private static List<TemplateFile> files(JsonNode json) {
        List<TemplateFile> files = new ArrayList<>();
        json.forEach(file -> files.add(new TemplateFile(
                text(file, "path"), text(file, "base64"), file.path("mode").asInt(), text(file, "owner"))));
        return files;
    }

    private static List<TemplatePort> ports(JsonNode json) {
        List<TemplatePort> ports = new ArrayList<>();
        json.forEach(port -> ports.add(new TemplatePort(port.path("port").asInt(), text(port, "name"))));
        return ports;
    }

    private static StartCommand start(JsonNode json) {
        StartCommand.Check check = new StartCommand.Check.Started();
        if (json.has("path")) {
            check = new StartCommand.Check.Http(json.path("port").asInt(), text(json, "path"));
        } else if (json.has("port")) {
            check = new StartCommand.Check.Port(json.path("port").asInt());
        } else if (json.has("ready_command")) {
            check = new StartCommand.Check.Command(text(json, "ready_command"));
        }
        return new StartCommand(
                text(json, "command"),
                new StartCommand.Ready(
                        check, Duration.ofMillis(json.path("timeout_ms").asLong())));
    }

    private static LimitChanges limits(JsonNode json) {
        return new LimitChanges(
                longNumber(json, "memory_bytes"),
                number(json, "cpu_millis"),
                longNumber(json, "disk_bytes"),
                number(json, "max_processes"),
                number(json, "max_open_files"));
    }

    private static OptionalLong longNumber(JsonNode json, String name) {
        JsonNode value = json.get(name);
        return value == null ? OptionalLong.empty() : OptionalLong.of(value.asLong());
    }

    private static LifecycleChanges lifecycle(JsonNode json) {
        return new LifecycleChanges(
                some(json.get("lifetime_s"), DefinitionJson::term),
                some(json.get("idle_s"), DefinitionJson::term),
                some(json.get("on_timeout"), choice -> OnTimeout.valueOf(choice.asString())),
                some(json.get("auto_resume"), JsonNode::asBoolean));
    }

    private static Term term(JsonNode seconds) {
        return seconds.asLong() == 0 ? Term.NONE : Term.of(Duration.ofSeconds(seconds.asLong()));
    }
}
