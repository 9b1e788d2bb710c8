package atoll.api;

import atoll.core.AtollException;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import java.util.function.Function;
import java.util.regex.Pattern;

/**
 * Ids in a body or a query. Text that has not the form of an id is a mistake in the request; an id that nothing has is something
 * that was not found, whatever its bits are.
 */
final class Ids {
    private static final Pattern CHARACTERS = Pattern.compile("[0-9a-hjkmnp-tv-z]{26}");

    private Ids() {}

    static SandboxId sandbox(String name, String text) {
        return parse(name, text, SandboxId.PREFIX, SandboxId::parse);
    }

    static ContextId context(String name, String text) {
        return parse(name, text, ContextId.PREFIX, ContextId::parse);
    }

    static SnapshotId snapshot(String name, String text) {
        return parse(name, text, SnapshotId.PREFIX, SnapshotId::parse);
    }

    private static <T> T parse(String name, String text, String prefix, Function<String, T> parse) {
        try {
            return parse.apply(text);
        } catch (AtollException e) {
            if (text.startsWith(prefix)
                    && CHARACTERS.matcher(text.substring(prefix.length())).matches()) {
                throw e;
            }
            throw new AtollException(ErrorCode.INVALID_REQUEST, name + ": " + e.message(), e.reason(), e.remediation());
        }
    }
}
