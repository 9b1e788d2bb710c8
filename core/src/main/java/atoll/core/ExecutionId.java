package atoll.core;

import java.util.UUID;

/** Names one run of code. */
public record ExecutionId(UUID uuid) {
    public static final String PREFIX = "exec-";

    public static ExecutionId random() {
        return new ExecutionId(UUID.randomUUID());
    }

    public static ExecutionId parse(String text) {
        return new ExecutionId(IdText.parse(PREFIX, text, "execution", ErrorCode.EXECUTION_NOT_FOUND));
    }

    @Override
    public String toString() {
        return IdText.format(PREFIX, uuid);
    }
}
