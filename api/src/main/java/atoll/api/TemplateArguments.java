package atoll.api;

import atoll.core.AtollException;
import atoll.core.Language;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.Term;
import atoll.core.template.Packages;
import atoll.core.template.StartCommand;
import atoll.core.template.TemplateDraft;
import atoll.core.template.TemplateFile;
import atoll.core.template.TemplatePort;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import tools.jackson.databind.JsonNode;

/** The fields of a template's definition, as they come with calls that make or change one. What is null is as if it had never been said. */
final class TemplateArguments {
    private static final Set<String> NAMES = Set.of(
            "name",
            "description",
            "image",
            "dockerfile",
            "packages",
            "files",
            "commands",
            "env",
            "user",
            "workdir",
            "start",
            "default_language",
            "limits",
            "timeout_seconds",
            "lifetime",
            "idle_timeout_seconds",
            "on_timeout",
            "auto_resume",
            "pool",
            "network",
            "ports",
            "runtime",
            "labels");
    private static final Set<String> PACKAGES = Set.of("apt", "pip", "npm", "go");
    private static final Set<String> FILE = Set.of("path", "content", "content_base64", "mode", "owner");
    private static final Set<String> START = Set.of("command", "ready");
    private static final Set<String> READY = Set.of("port", "path", "command", "timeout_seconds");
    private static final int MOST_POOL = 1000;

    private TemplateArguments() {}

    static Set<String> names(String... more) {
        var names = new HashSet<String>(NAMES);
        names.addAll(List.of(more));
        return Set.copyOf(names);
    }

    /** Writes what the fields say, and nothing else. */
    static void apply(Fields fields, TemplateDraft draft) {
        if (fields.has("name")) {
            draft.name(fields.text("name").orElse(""));
        }
        if (fields.has("description")) {
            draft.description(fields.text("description").orElse(""));
        }
        if (fields.has("image")) {
            draft.image(fields.text("image").orElse(""));
        }
        if (fields.has("dockerfile")) {
            draft.dockerfile(fields.text("dockerfile").orElse(""));
        }
        contents(fields, draft);
        behaviour(fields, draft);
        lifecycle(fields, draft);
        if (fields.has("pool")) {
            Optional<Fields> pool = fields.object("pool", Set.of("depth", "max_depth"));
            draft.poolDepth(pool.map(depths -> number(depths, "depth")).orElse(OptionalInt.empty()));
            draft.poolMaxDepth(pool.map(depths -> number(depths, "max_depth")).orElse(OptionalInt.empty()));
        }
        fields.text("network").ifPresent(TemplateArguments::checkNetwork);
        if (fields.has("ports")) {
            draft.ports(ports(fields));
        }
        if (fields.has("runtime")) {
            draft.runtime(fields.text("runtime").orElse(""));
        }
        if (fields.has("labels")) {
            draft.labels(fields.texts("labels"));
        }
    }

    private static void contents(Fields fields, TemplateDraft draft) {
        if (fields.has("packages")) {
            draft.packages(fields.object("packages", PACKAGES)
                    .map(kinds ->
                            new Packages(list(kinds, "apt"), list(kinds, "pip"), list(kinds, "npm"), list(kinds, "go")))
                    .orElse(Packages.NONE));
        }
        if (fields.has("files")) {
            draft.files(files(fields));
        }
        if (fields.has("commands")) {
            draft.commands(list(fields, "commands"));
        }
        if (fields.has("user")) {
            draft.user(fields.text("user").orElse(""));
        }
        if (fields.has("workdir")) {
            draft.workdir(fields.text("workdir").orElse(""));
        }
    }

    private static void behaviour(Fields fields, TemplateDraft draft) {
        if (fields.has("env")) {
            draft.env(fields.texts("env"));
        }
        if (fields.has("start")) {
            draft.start(fields.object("start", START).map(TemplateArguments::start));
        }
        if (fields.has("default_language")) {
            draft.defaultLanguage(fields.text("default_language").map(Language::parse));
        }
        if (fields.has("limits")) {
            draft.limits(fields.limits("limits"));
        }
        if (fields.has("timeout_seconds")) {
            draft.timeout(fields.seconds("timeout_seconds"));
        }
    }

    /** A field that is null here says nothing; a bound that is to be none is 0. */
    private static void lifecycle(Fields fields, TemplateDraft draft) {
        LifecycleChanges before = draft.lifecycle();
        Optional<Term> lifetime = before.lifetime();
        if (fields.has("lifetime")) {
            Optional<Fields> lifetimes = fields.object("lifetime", Set.of("default_seconds", "max_seconds"));
            lifetime = lifetimes.flatMap(times -> term(times, "default_seconds"));
            draft.maxLifetime(
                    lifetimes.flatMap(times -> term(times, "max_seconds")).flatMap(Term::length));
        }
        var given = LifecycleArguments.of(fields);
        draft.lifecycle(new LifecycleChanges(
                lifetime,
                fields.has("idle_timeout_seconds") ? term(fields, "idle_timeout_seconds") : before.idleTimeout(),
                fields.has("on_timeout") ? given.onTimeout() : before.onTimeout(),
                fields.has("auto_resume") ? given.autoResume() : before.autoResume()));
    }

    private static Optional<Term> term(Fields fields, String name) {
        return fields.isNull(name) ? Optional.empty() : fields.term(name, true);
    }

    private static OptionalInt number(Fields fields, String name) {
        return fields.has(name) && !fields.isNull(name)
                ? OptionalInt.of(fields.wholeNumber(name, 0, 0, MOST_POOL))
                : OptionalInt.empty();
    }

    private static List<String> list(Fields fields, String name) {
        return fields.textList(name).orElse(List.of());
    }

    private static void checkNetwork(String policy) {
        if (!policy.equals("none")) {
            throw AtollException.invalid(
                    "network: \"%s\" (expected: none)".formatted(policy.length() > 64 ? "…" : policy),
                    "Sandboxes have no network; the steps of a build have, as the settings say.");
        }
    }

    private static List<TemplateFile> files(Fields fields) {
        List<TemplateFile> files = new ArrayList<>();
        if (fields.isNull("files")) {
            return files;
        }
        for (JsonNode node : fields.nodes("files")) {
            var file = new Fields(node, FILE);
            Optional<String> content = file.text("content");
            Optional<String> base64 = file.text("content_base64");
            if (content.isPresent() == base64.isPresent()) {
                throw AtollException.invalid(
                        "files: %s content and content_base64 (expected: one of the two)"
                                .formatted(content.isPresent() ? "both" : "neither"),
                        "Send text as content, and anything else as content_base64.");
            }
            files.add(new TemplateFile(
                    file.requiredText("path"),
                    base64.orElseGet(() -> Base64.getEncoder()
                            .encodeToString(content.orElse("").getBytes(StandardCharsets.UTF_8))),
                    file.text("mode").map(TemplateArguments::mode).orElse(TemplateFile.MODE),
                    file.text("owner").orElse("")));
        }
        return files;
    }

    private static int mode(String octal) {
        if (!octal.matches("0?[0-7]{3}")) {
            throw AtollException.invalid(
                    "files.mode: \"%s\" (expected: three octal digits, such as 0644)"
                            .formatted(octal.length() > 16 ? "…" : octal),
                    "Correct the mode.");
        }
        return Integer.parseInt(octal, 8);
    }

    private static List<TemplatePort> ports(Fields fields) {
        List<TemplatePort> ports = new ArrayList<>();
        if (fields.isNull("ports")) {
            return ports;
        }
        for (JsonNode node : fields.nodes("ports")) {
            var port = new Fields(node, Set.of("port", "name"));
            ports.add(new TemplatePort(
                    port.wholeNumber("port", 0, 1, 65535), port.text("name").orElse("")));
        }
        return ports;
    }

    private static StartCommand start(Fields fields) {
        Optional<Fields> ready = fields.object("ready", READY);
        Duration timeout =
                ready.flatMap(given -> given.seconds("timeout_seconds")).orElse(StartCommand.Ready.TIMEOUT);
        StartCommand.Check check = ready.map(TemplateArguments::check).orElseGet(StartCommand.Check.Started::new);
        return new StartCommand(fields.requiredText("command"), new StartCommand.Ready(check, timeout));
    }

    private static StartCommand.Check check(Fields ready) {
        Optional<String> command = ready.text("command");
        Optional<String> path = ready.text("path");
        OptionalInt port = ready.has("port") && !ready.isNull("port")
                ? OptionalInt.of(ready.wholeNumber("port", 0, 1, 65535))
                : OptionalInt.empty();
        boolean commandAndMore = command.isPresent() && (path.isPresent() || port.isPresent());
        boolean pathAlone = path.isPresent() && port.isEmpty();
        if (commandAndMore || pathAlone) {
            throw AtollException.invalid(
                    "start.ready: %s (expected: a port, a port with a path, or a command)"
                            .formatted(pathAlone ? "a path without a port" : "a command with more"),
                    "Say one of these.");
        }
        if (command.isPresent()) {
            return new StartCommand.Check.Command(command.get());
        }
        if (port.isEmpty()) {
            return new StartCommand.Check.Started();
        }
        return path.isPresent()
                ? new StartCommand.Check.Http(port.getAsInt(), path.get())
                : new StartCommand.Check.Port(port.getAsInt());
    }
}
