package atoll.core;

import java.util.UUID;

/** Names a program that was started in a sandbox. */
public record ProcessId(UUID uuid) {
    public static final String PREFIX = "proc-";

    public static ProcessId random() {
        return new ProcessId(UUID.randomUUID());
    }

    public static ProcessId parse(String text) {
        return new ProcessId(IdText.parse(PREFIX, text, "process", ErrorCode.PROCESS_NOT_FOUND));
    }

    @Override
    public String toString() {
        return IdText.format(PREFIX, uuid);
    }
}
