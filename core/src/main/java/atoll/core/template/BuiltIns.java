package atoll.core.template;

import atoll.core.Language;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;

/** The templates that come with Atoll, the default one first. Each is made of a recipe of its name, or of its image in a registry. */
final class BuiltIns {
    static final String DEFAULT = "typescript-bun";
    private static final long MIB = 1024 * 1024;
    /** Debian bookworm, as the recipes; its own package {@code nodejs} is 18, which is too old for the kernel. */
    private static final String DEBIAN_WITH_NODE = "node:20-bookworm-slim";

    /**
     * One of them.
     *
     * @param languages what its image has, for as long as no node has it
     */
    record BuiltIn(String id, TemplateDefinition recipe, TemplateDefinition registry, List<Language> languages) {}

    /** Those whose images are there from the start. */
    private static final Set<String> FILLED = Set.of(DEFAULT, "python");

    private static final Map<String, BuiltIn> ALL = all();

    private BuiltIns() {}

    static Map<String, BuiltIn> byId() {
        return ALL;
    }

    private static Map<String, BuiltIn> all() {
        Map<String, BuiltIn> all = new LinkedHashMap<>();
        put(
                all,
                DEFAULT,
                "TypeScript (Bun)",
                "TypeScript and JavaScript on Bun, with bash. The default.",
                "oven/bun:latest",
                npm("zod", "cheerio", "lodash-es", "date-fns"),
                LimitChanges.NONE,
                Language.TYPESCRIPT);
        put(
                all,
                "typescript-node",
                "TypeScript (Node)",
                "TypeScript and JavaScript on Node.js, with tsx and bash.",
                "node:20-alpine",
                npm("tsx", "zod", "axios", "cheerio", "date-fns"),
                LimitChanges.NONE,
                Language.TYPESCRIPT);
        put(
                all,
                "nodejs",
                "Node.js",
                "JavaScript on Node.js, with bash.",
                "node:20-alpine",
                npm("axios", "cheerio", "lodash", "moment", "uuid"),
                LimitChanges.NONE,
                Language.TYPESCRIPT);
        put(
                all,
                "python",
                "Python",
                "CPython of Debian's current suite with pip, and bash.",
                "python:3.12-slim",
                pip("requests", "beautifulsoup4", "httpx", "pydantic"),
                LimitChanges.NONE,
                Language.PYTHON);
        put(
                all,
                "deno",
                "Deno",
                "TypeScript and JavaScript on Deno, with bash.",
                "denoland/deno:latest",
                Packages.NONE,
                LimitChanges.NONE,
                Language.TYPESCRIPT);
        put(
                all,
                "go",
                "Go",
                "Go with a warmed build cache, and bash. Has 512 MiB of memory and 1 CPU: the compiler needs them.",
                "golang:1.22-alpine",
                Packages.NONE,
                limits(512 * MIB, 1000),
                Language.GO);
        put(
                all,
                "data-science",
                "Data science",
                "Python with NumPy, pandas, Matplotlib, scikit-learn and more; JavaScript and TypeScript on Node.js."
                        + " Has 1 GiB of memory: they need it.",
                DEBIAN_WITH_NODE,
                new Packages(
                        List.of("python3", "python3-pip", "ca-certificates"),
                        List.of(
                                "numpy",
                                "pandas",
                                "matplotlib",
                                "plotly",
                                "scikit-learn",
                                "scipy",
                                "seaborn",
                                "pillow",
                                "sympy",
                                "openpyxl",
                                "jinja2"),
                        List.of(),
                        List.of()),
                limits(1024 * MIB, 1000),
                Language.PYTHON,
                Language.TYPESCRIPT);
        put(
                all,
                "base",
                "Base",
                "Debian with Python, Node.js, git, curl, sudo and bash.",
                DEBIAN_WITH_NODE,
                new Packages(
                        List.of("bash", "ca-certificates", "curl", "git", "sudo", "python3", "python3-pip"),
                        List.of(),
                        List.of(),
                        List.of()),
                LimitChanges.NONE,
                // Not Bash: whoever asks for that alone is given the default template.
                Language.PYTHON,
                Language.BASH,
                Language.TYPESCRIPT);
        return Collections.unmodifiableMap(all);
    }

    private static void put(
            Map<String, BuiltIn> all,
            String id,
            String name,
            String description,
            String image,
            Packages packages,
            LimitChanges limits,
            Language first,
            Language... more) {
        TemplateDraft draft = new TemplateDraft()
                .name(name)
                .description(description)
                .limits(limits)
                // Eight pools would take the machine from the sandboxes: the others start theirs when they are asked
                // for.
                .poolDepth(FILLED.contains(id) ? OptionalInt.empty() : OptionalInt.of(0))
                .defaultLanguage(Optional.of(first));
        TemplateDefinition recipe = draft.recipe(id).definition();
        TemplateDefinition registry = draft.image(image).packages(packages).definition();
        List<Language> languages = new ArrayList<>(List.of(first));
        languages.addAll(List.of(more));
        if (!languages.contains(Language.BASH)) {
            languages.add(Language.BASH);
        }
        all.put(id, new BuiltIn(id, recipe, registry, List.copyOf(languages)));
    }

    private static LimitChanges limits(long memory, int cpuMillis) {
        return new LimitChanges(
                OptionalLong.of(memory),
                OptionalInt.of(cpuMillis),
                OptionalLong.empty(),
                OptionalInt.empty(),
                OptionalInt.empty());
    }

    private static Packages npm(String... names) {
        return new Packages(List.of(), List.of(), List.of(names), List.of());
    }

    private static Packages pip(String... names) {
        return new Packages(List.of(), List.of(names), List.of(), List.of());
    }
}
