package atoll.core;

import java.util.Optional;
import java.util.function.Predicate;

/**
 * Secrets that open one sandbox each, for those who should not have an API key. They are derived from the installation's key: nothing is
 * stored, and a token is the same after a pause, a restart and on the next day. It opens nothing once the sandbox has ended.
 */
public interface SandboxTokens {
    /** Who a token speaks for: it may do in its sandbox what a key may. */
    record Bearer(SandboxId sandbox, Caller caller) {}

    /**
     * The token of a sandbox of the caller's project, 32 hexadecimal digits.
     *
     * @param purpose tokens of one purpose open nothing for another, e.g. {@code e2b/envd}
     */
    String token(Caller caller, SandboxId sandbox, String purpose);

    /** Who the token speaks for; fails with {@code UNAUTHENTICATED} if it is not the one of this sandbox and purpose. */
    Bearer authenticate(SandboxId sandbox, String purpose, String token);

    /** Whoever the sandbox itself lets in without any token, where a protocol says so; fails as {@code Sandboxes.get} does. */
    Bearer anonymous(SandboxId sandbox);

    /** The sandbox whose token {@code fits}, among those that have not ended. For what comes signed with a token and names no sandbox. */
    Optional<Bearer> find(String purpose, Predicate<String> fits);
}
