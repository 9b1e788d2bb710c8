package atoll.core;

import java.util.UUID;

/** Names a build of a template's image. */
public record BuildId(UUID uuid) {
    public static final String PREFIX = "bld-";

    public static BuildId random() {
        return new BuildId(UUID.randomUUID());
    }

    public static BuildId parse(String text) {
        return new BuildId(IdText.parse(PREFIX, text, "build", ErrorCode.BUILD_NOT_FOUND));
    }

    @Override
    public String toString() {
        return IdText.format(PREFIX, uuid);
    }
}
