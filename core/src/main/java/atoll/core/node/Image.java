package atoll.core.node;

import atoll.core.Language;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/**
 * A root file system that a node has, with what is to be known to run it.
 *
 * @param name of the recipe, or what it was made for
 * @param digest names its content; boxes are made from it
 * @param languages those this server knows, of the image's
 * @param defaultLanguage one of these; empty where it has none
 * @param packages by kind, such as {@code pip}: name and version of what it holds
 * @param source what it was made of: a recipe's name, or a reference with the digest of its manifest
 * @param user whom what runs in it runs as; empty: not known
 */
public record Image(
        String name,
        String digest,
        long sizeBytes,
        List<Language> languages,
        Optional<Language> defaultLanguage,
        Map<String, Map<String, String>> packages,
        Origin origin,
        String source,
        String user,
        Instant builtAt) {
    public Image {
        languages = List.copyOf(languages);
        packages = Map.copyOf(packages);
    }

    /** One of a recipe, built at the beginning of time. */
    public Image(
            String name,
            String digest,
            long sizeBytes,
            List<Language> languages,
            Map<String, Map<String, String>> packages) {
        this(
                name,
                digest,
                sizeBytes,
                languages,
                languages.stream().findFirst(),
                packages,
                Origin.RECIPE,
                name,
                "",
                Instant.EPOCH);
    }

    /** Where an image came from. */
    public enum Origin {
        RECIPE,
        REGISTRY,
        ARCHIVE,
        DOCKERFILE,
        /** A sandbox that was saved. */
        SANDBOX,
        DOCKER_DAEMON;

        public String text() {
            return name().toLowerCase(Locale.ROOT);
        }
    }
}
