package atoll.core.template;

import atoll.core.Language;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * What sandboxes are made from.
 *
 * @param id names it in calls, e.g. {@code python}
 * @param image the name of its image on the node
 * @param languages those its contexts can speak; the default one is among them
 * @param timeout of an execution, where the call names none
 * @param poolDepth how many started sandboxes are kept ready
 * @param packages by kind, such as {@code pip}: name and version of what the image holds, as the image says; empty until a node has it
 */
public record Template(
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
    public Template {
        languages = List.copyOf(languages);
        packages = Map.copyOf(packages);
        if (!languages.contains(defaultLanguage)) {
            throw new IllegalArgumentException(
                    "default language: " + defaultLanguage + " (expected: one of " + languages + ")");
        }
    }
}
