package atoll.core;

import java.util.UUID;

/** Names one life of a sandbox. */
public record RunId(UUID uuid) {
    public static final String PREFIX = "run-";

    public static RunId random() {
        return new RunId(UUID.randomUUID());
    }

    public static RunId parse(String text) {
        return new RunId(IdText.parse(PREFIX, text, "run", ErrorCode.NOT_FOUND));
    }

    @Override
    public String toString() {
        return IdText.format(PREFIX, uuid);
    }
}
