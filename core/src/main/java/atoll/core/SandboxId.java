package atoll.core;

import java.util.UUID;

/** Names a sandbox for callers. */
public record SandboxId(UUID uuid) {
    public static final String PREFIX = "sb-exec-";

    public static SandboxId random() {
        return new SandboxId(UUID.randomUUID());
    }

    public static SandboxId parse(String text) {
        return new SandboxId(IdText.parse(PREFIX, text, "sandbox", ErrorCode.SANDBOX_NOT_FOUND));
    }

    @Override
    public String toString() {
        return IdText.format(PREFIX, uuid);
    }
}
