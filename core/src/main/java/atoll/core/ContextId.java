package atoll.core;

import java.util.UUID;

/** Names a stateful interpreter in a sandbox. */
public record ContextId(UUID uuid) {
    public static final String PREFIX = "ctx-";

    public static ContextId random() {
        return new ContextId(UUID.randomUUID());
    }

    public static ContextId parse(String text) {
        return new ContextId(IdText.parse(PREFIX, text, "context", ErrorCode.CONTEXT_NOT_FOUND));
    }

    @Override
    public String toString() {
        return IdText.format(PREFIX, uuid);
    }
}
