package atoll.core.node;

import atoll.core.Language;
import java.util.List;
import java.util.Map;

/**
 * A root file system that a node has.
 *
 * @param digest names its content; boxes are made from it
 * @param languages those this server knows, of the image's
 * @param packages by kind, such as {@code pip}: name and version of what it holds
 */
public record Image(
        String name,
        String digest,
        long sizeBytes,
        List<Language> languages,
        Map<String, Map<String, String>> packages) {
    public Image {
        languages = List.copyOf(languages);
        packages = Map.copyOf(packages);
    }
}
