package atoll.core.template;

import atoll.core.Language;
import atoll.core.sandbox.LifecycleChanges;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * A version of a template with all that is needed to make sandboxes of it: its definition, completed by the settings and by what its
 * image says of itself.
 *
 * @param id names it in calls, e.g. {@code python}
 * @param version counted from 1
 * @param image what its image is made of: a reference, or the recipe's name; empty: a Dockerfile
 * @param languages those its contexts can speak; the default one is among them
 * @param defaultLanguage empty where its image has no language, or is not known yet
 * @param timeout of an execution, where the call names none
 * @param poolDepth how many started sandboxes are kept ready
 * @param poolMaxDepth the most that are kept ready, if the settings are not to say
 * @param packages by kind, such as {@code pip}: name and version of what the image holds, as the image says; empty until a node has it
 * @param env of everything that runs in a sandbox
 * @param lifecycle of a sandbox whose maker does not say
 * @param runtime one of the node's; empty: the node's choice
 * @param imageKey tells whether two versions are made in the same way
 */
public record Template(
        String id,
        int version,
        String name,
        String description,
        String image,
        List<Language> languages,
        Optional<Language> defaultLanguage,
        Limits limits,
        Duration timeout,
        int poolDepth,
        OptionalInt poolMaxDepth,
        Map<String, Map<String, String>> packages,
        Map<String, String> env,
        LifecycleChanges lifecycle,
        Optional<Duration> maxLifetime,
        Optional<StartCommand> start,
        List<TemplatePort> ports,
        String runtime,
        Map<String, String> labels,
        String imageKey) {
    public Template {
        languages = List.copyOf(languages);
        packages = Map.copyOf(packages);
        env = Map.copyOf(env);
        ports = List.copyOf(ports);
        labels = Map.copyOf(labels);
        if (defaultLanguage.isPresent() && !languages.contains(defaultLanguage.get())) {
            throw new IllegalArgumentException(
                    "default language: " + defaultLanguage.get() + " (expected: one of " + languages + ")");
        }
    }

    /** The first version of one that is as the settings say. */
    public Template(
            String id,
            String name,
            String description,
            String image,
            List<Language> languages,
            Language defaultLanguage,
            Limits limits,
            Duration timeout,
            int poolDepth,
            Map<String, Map<String, String>> packages) {
        this(
                id,
                1,
                name,
                description,
                image,
                languages,
                Optional.of(defaultLanguage),
                limits,
                timeout,
                poolDepth,
                OptionalInt.empty(),
                packages,
                Map.of(),
                LifecycleChanges.NONE,
                Optional.empty(),
                Optional.empty(),
                List.of(),
                "",
                Map.of(),
                "");
    }

    /** Whether boxes of this one and the other are made in the same way. */
    public boolean makesSameBoxes(Template other) {
        return imageKey.equals(other.imageKey)
                && limits.equals(other.limits)
                && poolDepth == other.poolDepth
                && poolMaxDepth.equals(other.poolMaxDepth)
                && env.equals(other.env)
                && start.equals(other.start)
                && runtime.equals(other.runtime);
    }
}
