package atoll.core;

import java.util.Locale;
import java.util.Set;

/** Who calls: every call of core takes one, and it alone decides what is seen and allowed. Made by {@link Keys#authenticate}. */
public record Caller(ProjectId project, KeyId key, Set<Scope> scopes) {
    public Caller {
        scopes = Set.copyOf(scopes);
    }

    /** Requires the scope, or fails with {@code FORBIDDEN}. */
    public void require(Scope scope) {
        if (!scopes.contains(scope)) {
            throw new AtollException(
                    ErrorCode.FORBIDDEN,
                    "This key may not do that (needed: " + scope.name().toLowerCase(Locale.ROOT) + ").",
                    "Key " + key + " lacks the scope.",
                    "Use a key with that scope.");
        }
    }
}
