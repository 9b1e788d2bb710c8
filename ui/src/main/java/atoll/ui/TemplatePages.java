package atoll.ui;

import atoll.core.Atoll;
import atoll.core.AtollException;
import atoll.core.BuildId;
import atoll.core.Language;
import atoll.core.Scope;
import atoll.core.template.Build;
import atoll.core.template.LimitChanges;
import atoll.core.template.Packages;
import atoll.core.template.TemplateDefinition;
import atoll.core.template.TemplateDraft;
import atoll.core.template.Templates;
import atoll.http.Form;
import java.math.BigDecimal;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.stream.Collectors;

/** Templates are made, changed, duplicated, deleted, chosen as default and built here; a build is followed on a page of its own. */
public final class TemplatePages implements Page {
    private static final String HOME = "/ui/";
    private static final long MIB = 1 << 20;

    private final Templates templates;

    TemplatePages(Atoll atoll) {
        this.templates = atoll.templates();
    }

    /** The fields of the form, as text; empty where the settings decide. */
    public record Fields(
            String id,
            boolean isNew,
            boolean isRecipe,
            String name,
            String description,
            String image,
            String dockerfile,
            String apt,
            String pip,
            String npm,
            String commands,
            String env,
            String language,
            String memory,
            String cpu,
            String disk,
            String timeout,
            String pool,
            List<String> languages) {}

    /** A build. */
    public record BuildModel(
            String template,
            String name,
            String id,
            int version,
            String state,
            boolean over,
            String problem,
            String logPath,
            boolean mayChange) {}

    public record Duplicate(String id, String name, String newId) {}

    @Override
    public void addTo(Site site) {
        site.page("/ui/templates/new", visit -> {
                    visit.caller().require(Scope.EXECUTE);
                    return form(
                            "New template",
                            fields(
                                    "",
                                    new TemplateDraft()
                                            .image("python:3.12-slim")
                                            .definition()));
                })
                .page("/ui/templates/{id}/edit", visit -> {
                    Templates.Detail detail = templates.detail(visit.caller(), visit.path("id"), newest(visit));
                    return form("Edit " + visit.path("id"), fields(visit.path("id"), detail.definition()));
                })
                .page("/ui/templates/{id}/duplicate", visit -> {
                    Templates.Detail detail = templates.detail(visit.caller(), visit.path("id"), Optional.empty());
                    String name = detail.definition().name();
                    return View.page(Nav.CODE_EXECUTION, "Duplicate " + visit.path("id"), "templates/duplicate")
                            .with("model", new Duplicate(visit.path("id"), name, visit.path("id") + "-copy"));
                })
                .page("/ui/templates/{id}/builds/{build}", this::build)
                .action("/ui/templates", this::create)
                .action("/ui/templates/{id}", this::update)
                .action("/ui/templates/{id}/duplicate", (visit, form) -> {
                    String newId = form.text("id").strip();
                    templates.duplicate(visit.caller(), visit.path("id"), newId, form.given("name"));
                    return Outcome.to(HOME).saying("Template " + newId + " made");
                })
                .action("/ui/templates/{id}/delete", (visit, _) -> {
                    templates.delete(visit.caller(), visit.path("id"));
                    return Outcome.to(HOME).saying("Template " + visit.path("id") + " deleted");
                })
                .action("/ui/templates/{id}/default", (visit, _) -> {
                    templates.setDefault(visit.caller(), visit.path("id"));
                    return Outcome.to(HOME).saying(visit.path("id") + " is the default now");
                })
                .action(
                        "/ui/templates/{id}/build",
                        (visit, form) -> begin(visit, visit.path("id"), form.has("no_cache")))
                .action("/ui/templates/{id}/builds/{build}/cancel", (visit, _) -> {
                    BuildId build = BuildId.parse(visit.path("build"));
                    templates.cancel(visit.caller(), visit.path("id"), build);
                    return Outcome.to(buildPath(visit.path("id"), build)).saying("The build is cancelled");
                });
    }

    static String buildPath(String template, BuildId build) {
        return "/ui/templates/" + escaped(template) + "/builds/" + build;
    }

    private static String escaped(String segment) {
        return URLEncoder.encode(segment, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private Optional<Integer> newest(Visit visit) {
        return Optional.of(templates
                .detail(visit.caller(), visit.path("id"), Optional.empty())
                .summary()
                .newest());
    }

    private static View form(String title, Fields fields) {
        return View.page(Nav.CODE_EXECUTION, title, "templates/form").with("fields", fields);
    }

    private View build(Visit visit) {
        String id = visit.path("id");
        Build build = templates.build(visit.caller(), id, BuildId.parse(visit.path("build")));
        String name = templates.get(visit.caller(), id).name();
        var model = new BuildModel(
                id,
                name.isEmpty() ? id : name,
                build.id().toString(),
                build.version(),
                build.state().text(),
                build.state().isOver(),
                Format.plain(build.failure().map(Build.Failure::message).orElse("")),
                "/ui/v1/templates/%s/builds/%s/log?follow=true".formatted(escaped(id), build.id()),
                visit.mayExecute());
        return View.page(Nav.CODE_EXECUTION, "Build of " + id, "templates/build")
                .with("model", model)
                .script("results.js")
                .script("build.js");
    }

    private Outcome begin(Visit visit, String id, boolean noCache) {
        Build begun = templates.build(visit.caller(), id, Optional.empty(), noCache);
        return Outcome.to(buildPath(id, begun.id()));
    }

    private Outcome create(Visit visit, Form form) {
        String id = form.text("id").strip();
        var draft = new TemplateDraft();
        apply(form, draft, Packages.NONE, LimitChanges.NONE);
        templates.create(visit.caller(), id, draft.definition());
        return form.has("build") ? begin(visit, id, false) : Outcome.to(HOME).saying("Template " + id + " made");
    }

    private Outcome update(Visit visit, Form form) {
        String id = visit.path("id");
        TemplateDefinition before =
                templates.detail(visit.caller(), id, newest(visit)).definition();
        templates.update(visit.caller(), id, draft -> apply(form, draft, before.packages(), before.limits()));
        return form.has("build") ? begin(visit, id, false) : Outcome.to(HOME).saying("Template " + id + " saved");
    }

    /** Writes what the form says; what it has no field for stays. */
    private static void apply(Form form, TemplateDraft draft, Packages packages, LimitChanges limits) {
        draft.name(form.text("name").strip())
                .description(text(form, "description").strip());
        String source = form.text("source");
        switch (source) {
            case "image" -> draft.dockerfile("").image(form.text("image").strip());
            case "dockerfile" -> draft.image("").dockerfile(text(form, "dockerfile"));
            case "recipe" -> {}
            default ->
                throw AtollException.invalid(
                        "source: \"" + source + "\" (expected: image or dockerfile)", "Choose one.");
        }
        if (!source.equals("dockerfile")) {
            draft.packages(new Packages(words(form, "apt"), words(form, "pip"), words(form, "npm"), packages.go()))
                    .commands(lines(form, "commands"));
        }
        draft.env(env(form));
        draft.defaultLanguage(form.given("language").map(Language::parse));
        draft.limits(new LimitChanges(
                mebibytes(form, "memory"),
                form.given("cpu")
                        .map(text -> OptionalInt.of((int) Math.round(decimal("cpu", text) * 1000)))
                        .orElse(OptionalInt.empty()),
                mebibytes(form, "disk"),
                limits.maxProcesses(),
                limits.maxOpenFiles()));
        draft.timeout(form.given("timeout")
                .map(text -> Duration.ofMillis(Math.round(decimal("timeout", text) * 1000))));
        draft.poolDepth(form.given("pool")
                .map(text -> OptionalInt.of((int) Math.round(decimal("pool", text))))
                .orElse(OptionalInt.empty()));
    }

    /** With the line ends that files have: forms send two characters for each. */
    private static String text(Form form, String name) {
        return form.text(name).replace("\r\n", "\n");
    }

    private static List<String> lines(Form form, String name) {
        return text(form, name)
                .lines()
                .map(String::strip)
                .filter(line -> !line.isEmpty())
                .toList();
    }

    private static List<String> words(Form form, String name) {
        return lines(form, name).stream()
                .flatMap(line -> List.of(line.split("\\s+", -1)).stream())
                .toList();
    }

    private static Map<String, String> env(Form form) {
        Map<String, String> env = new LinkedHashMap<>();
        for (String line : lines(form, "env")) {
            int equals = line.indexOf('=');
            if (equals < 1) {
                throw AtollException.invalid(
                        "env: \"" + (line.length() > 64 ? line.substring(0, 64) + "…" : line)
                                + "\" (expected: NAME=value)",
                        "Write one variable per line.");
            }
            env.put(line.substring(0, equals), line.substring(equals + 1));
        }
        return env;
    }

    private static OptionalLong mebibytes(Form form, String name) {
        return form.given(name)
                .map(text -> OptionalLong.of(Math.round(decimal(name, text) * MIB)))
                .orElse(OptionalLong.empty());
    }

    private static double decimal(String name, String text) {
        try {
            double value = Double.parseDouble(text);
            if (value >= 0 && value <= 1e9) {
                return value;
            }
        } catch (NumberFormatException _) {
            // Said below.
        }
        throw AtollException.invalid(
                name + ": \"" + (text.length() > 64 ? text.substring(0, 64) + "…" : text) + "\" (expected: a number)",
                "Correct the number.");
    }

    private static Fields fields(String id, TemplateDefinition definition) {
        return new Fields(
                id,
                id.isEmpty(),
                definition.recipe().isPresent(),
                definition.name(),
                definition.description(),
                definition.image(),
                definition.dockerfile(),
                String.join("\n", definition.packages().apt()),
                String.join("\n", definition.packages().pip()),
                String.join("\n", definition.packages().npm()),
                String.join("\n", definition.commands()),
                definition.env().entrySet().stream()
                        .sorted(Map.Entry.comparingByKey())
                        .map(one -> one.getKey() + "=" + one.getValue())
                        .collect(Collectors.joining("\n")),
                definition.defaultLanguage().map(Language::text).orElse(""),
                definition.limits().memoryBytes().isPresent()
                        ? plain(definition.limits().memoryBytes().getAsLong() / (double) MIB)
                        : "",
                definition.limits().cpuMillis().isPresent()
                        ? plain(definition.limits().cpuMillis().getAsInt() / 1000.0)
                        : "",
                definition.limits().diskBytes().isPresent()
                        ? plain(definition.limits().diskBytes().getAsLong() / (double) MIB)
                        : "",
                definition
                        .timeout()
                        .map(time -> plain(time.toMillis() / 1000.0))
                        .orElse(""),
                definition.poolDepth().isPresent()
                        ? Integer.toString(definition.poolDepth().getAsInt())
                        : "",
                Arrays.stream(Language.values()).map(Language::text).toList());
    }

    private static String plain(double value) {
        return new BigDecimal(String.valueOf(value)).stripTrailingZeros().toPlainString();
    }
}
