package atoll.core;

import java.util.UUID;

/** Names a sandbox's body on a node. Never shown to callers. */
public record BoxId(UUID uuid) {
    public static final String PREFIX = "box-";

    public static BoxId random() {
        return new BoxId(UUID.randomUUID());
    }

    public static BoxId parse(String text) {
        return new BoxId(IdText.parse(PREFIX, text, "box", ErrorCode.INTERNAL));
    }

    @Override
    public String toString() {
        return IdText.format(PREFIX, uuid);
    }
}
