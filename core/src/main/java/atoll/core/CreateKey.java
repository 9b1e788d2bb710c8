package atoll.core;

import java.time.Instant;
import java.util.Optional;
import java.util.Set;

/**
 * A key to be made.
 *
 * @param scopes what it allows; READ alone makes a key that changes nothing
 * @param expiresAt when it stops to open anything; empty: never
 */
public record CreateKey(String name, Set<Scope> scopes, Optional<Instant> expiresAt) {
    private static final int MAX_NAME_CHARS = 100;

    public CreateKey {
        scopes = Set.copyOf(scopes);
        if (name.isBlank()
                || name.length() > MAX_NAME_CHARS
                || name.chars().anyMatch(c -> Character.isISOControl(c) || Character.isSurrogate((char) c))) {
            throw AtollException.invalid(
                    "name of " + name.length() + " characters (expected: 1 to " + MAX_NAME_CHARS
                            + " characters that can be printed)",
                    "Say in a few words what the key is for.");
        }
        if (scopes.isEmpty()) {
            throw AtollException.invalid(
                    "scopes: none (expected: some of read, execute, admin)", "Name what the key is to allow.");
        }
    }
}
