package atoll.core.template;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.Scope;
import atoll.core.Settings;
import atoll.core.node.Image;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The built-in templates, completed by what the node's images say of themselves. */
public final class TemplateCatalog implements Templates {
    public static final String DEFAULT = "typescript-bun";

    private final Map<String, Template> builtIn = new LinkedHashMap<>();
    private volatile Map<String, Image> images = Map.of();
    /** With what the images say; asked for by every call. */
    private volatile Map<String, Template> templates;

    public TemplateCatalog(Settings settings) {
        add(
                settings,
                DEFAULT,
                "TypeScript (Bun)",
                "TypeScript and JavaScript on Bun, with bash. The default.",
                List.of(Language.TYPESCRIPT, Language.BASH));
        add(
                settings,
                "python",
                "Python",
                "CPython of Debian's current suite with pip, and bash.",
                List.of(Language.PYTHON, Language.BASH));
        templates = Collections.unmodifiableMap(new LinkedHashMap<>(builtIn));
    }

    private void add(Settings settings, String id, String name, String description, List<Language> languages) {
        builtIn.put(
                id,
                new Template(
                        id,
                        name,
                        description,
                        id,
                        languages,
                        languages.getFirst(),
                        settings.limits(),
                        settings.timeout(),
                        settings.poolDepth(id),
                        Map.of()));
    }

    /** Takes note of what the node has. */
    public void imagesSeen(List<Image> seen) {
        Map<String, Image> byName = new HashMap<>();
        seen.forEach(image -> byName.put(image.name(), image));
        images = Map.copyOf(byName);
        Map<String, Template> completed = new LinkedHashMap<>();
        builtIn.values().forEach(template -> completed.put(template.id(), completed(template)));
        templates = Collections.unmodifiableMap(completed);
    }

    /** The image of a template, once a node has it. */
    public Optional<Image> image(Template template) {
        return Optional.ofNullable(images.get(template.image()));
    }

    public List<Template> all() {
        return List.copyOf(templates.values());
    }

    @Override
    public List<Template> list(Caller caller) {
        caller.require(Scope.READ);
        return all();
    }

    @Override
    public Template get(Caller caller, String id) {
        caller.require(Scope.READ);
        return byId(id);
    }

    /** Fails with {@code TEMPLATE_NOT_FOUND}. */
    public Template byId(String id) {
        Template template = templates.get(id);
        if (template == null) {
            throw new AtollException(
                    ErrorCode.TEMPLATE_NOT_FOUND,
                    "template: \"" + (id.length() > 64 ? id.substring(0, 64) + "…" : id) + "\" (expected: one of "
                            + String.join(", ", builtIn.keySet()) + ")",
                    "There is no template of that name.",
                    "GET /v1/templates lists them; leave it out for the default.");
        }
        return template;
    }

    /** The template of a sandbox to be made: the one named, or the first whose own language it is, or the default. */
    public Template choose(Optional<String> id, Optional<Language> language) {
        if (id.isPresent()) {
            return byId(id.get());
        }
        if (language.isEmpty()) {
            return byId(DEFAULT);
        }
        List<Template> all = all();
        for (Template template : all) {
            if (template.defaultLanguage() == language.get()) {
                return template;
            }
        }
        for (Template template : all) {
            if (template.languages().contains(language.get())) {
                return template;
            }
        }
        return byId(DEFAULT);
    }

    /** The language that a call gets in a sandbox of this template; fails with {@code LANGUAGE_UNAVAILABLE}. */
    public Language choose(Template template, Optional<Language> language) {
        Language chosen = language.orElse(template.defaultLanguage());
        if (!template.languages().contains(chosen)) {
            List<String> others = new ArrayList<>();
            all().forEach(other -> {
                if (other.languages().contains(chosen)) {
                    others.add(other.id());
                }
            });
            throw new AtollException(
                    ErrorCode.LANGUAGE_UNAVAILABLE,
                    "language: " + chosen + " in a sandbox of template " + template.id() + " (expected: one of "
                            + String.join(
                                    ", ",
                                    template.languages().stream()
                                            .map(Language::text)
                                            .toList())
                            + ")",
                    "The template's image has no " + chosen + ".",
                    others.isEmpty()
                            ? "Use one of these languages."
                            : "Use a sandbox of template " + String.join(" or ", others) + ".");
        }
        return chosen;
    }

    private Template completed(Template template) {
        Image image = images.get(template.image());
        if (image == null) {
            return template;
        }
        List<Language> languages =
                image.languages().contains(template.defaultLanguage()) ? image.languages() : template.languages();
        return new Template(
                template.id(),
                template.name(),
                template.description(),
                template.image(),
                languages,
                template.defaultLanguage(),
                template.limits(),
                template.timeout(),
                template.poolDepth(),
                image.packages());
    }
}
