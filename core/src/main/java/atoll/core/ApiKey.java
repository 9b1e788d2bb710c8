package atoll.core;

import java.time.Instant;
import java.util.Optional;
import java.util.Set;

/**
 * What is known of an API key. Nobody knows the key itself but who was told when it was made.
 *
 * @param shownPrefix its first characters, for people to tell keys apart
 * @param lastUsedAt to about a minute
 */
public record ApiKey(
        KeyId id,
        ProjectId project,
        String name,
        String shownPrefix,
        Set<Scope> scopes,
        Instant createdAt,
        Optional<Instant> expiresAt,
        Optional<Instant> lastUsedAt) {
    public ApiKey {
        scopes = Set.copyOf(scopes);
    }
}
