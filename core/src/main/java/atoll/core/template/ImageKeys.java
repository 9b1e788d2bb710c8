package atoll.core.template;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.regex.Pattern;

/**
 * What tells whether two definitions give the same image. A change of anything else makes a new version and no new image. A recipe alone
 * has its name as key, and an image of the node its digest.
 */
final class ImageKeys {
    private static final String RECIPE = "recipe:";
    private static final String IMAGE = "image:";
    private static final Pattern DIGEST = Pattern.compile("(sha256:)?[0-9a-f]{64}");

    private ImageKeys() {}

    static String of(TemplateDefinition definition) {
        if (!TemplateDockerfile.isNeeded(definition)) {
            if (definition.recipe().isPresent()) {
                return RECIPE + definition.recipe().get();
            }
            Optional<String> digest = digest(definition.image());
            if (digest.isPresent()) {
                return IMAGE + digest.get();
            }
        }
        Packages packages = definition.packages();
        Hash hash = new Hash();
        hash.add(definition.image());
        hash.add(definition.recipe().orElse(""));
        hash.add(definition.dockerfile());
        List.of(packages.apt(), packages.pip(), packages.npm(), packages.go()).forEach(hash::add);
        definition.files().forEach(file -> {
            hash.add(file.path());
            hash.add(file.content());
            hash.add(Integer.toString(file.mode()));
            hash.add(file.owner());
        });
        hash.add(definition.commands());
        hash.add(definition.context().map(BuildContext::digest).orElse(""));
        hash.add(definition.user());
        hash.add(definition.workdir());
        return hash.hex();
    }

    /** The digest, if an image is named by it. */
    static Optional<String> digest(String image) {
        return DIGEST.matcher(image).matches() ? Optional.of(image.substring(image.length() - 64)) : Optional.empty();
    }

    static Optional<String> recipe(String key) {
        return key.startsWith(RECIPE) ? Optional.of(key.substring(RECIPE.length())) : Optional.empty();
    }

    static Optional<String> imageOf(String key) {
        return key.startsWith(IMAGE) ? Optional.of(key.substring(IMAGE.length())) : Optional.empty();
    }

    private static final class Hash {
        private final MessageDigest digest;

        Hash() {
            try {
                digest = MessageDigest.getInstance("SHA-256");
            } catch (NoSuchAlgorithmException e) {
                throw new IllegalStateException("every Java platform has SHA-256", e);
            }
        }

        /** With its length first, so that no two lists of parts read the same. */
        void add(byte[] part) {
            digest.update((part.length + ":").getBytes(StandardCharsets.US_ASCII));
            digest.update(part);
        }

        void add(String part) {
            add(part.getBytes(StandardCharsets.UTF_8));
        }

        void add(List<String> parts) {
            add(Integer.toString(parts.size()));
            parts.forEach(this::add);
        }

        String hex() {
            return HexFormat.of().formatHex(digest.digest());
        }
    }
}
