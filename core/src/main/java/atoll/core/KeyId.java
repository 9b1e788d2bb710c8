package atoll.core;

import java.util.UUID;

/** Names an API key without being it. */
public record KeyId(UUID uuid) {
    public static final String PREFIX = "key-";

    public static KeyId random() {
        return new KeyId(UUID.randomUUID());
    }

    public static KeyId parse(String text) {
        return new KeyId(IdText.parse(PREFIX, text, "key", ErrorCode.NOT_FOUND));
    }

    @Override
    public String toString() {
        return IdText.format(PREFIX, uuid);
    }
}
