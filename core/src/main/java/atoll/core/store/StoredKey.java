package atoll.core.store;

import atoll.core.KeyId;
import atoll.core.ProjectId;
import atoll.core.Scope;
import java.time.Instant;
import java.util.Optional;
import java.util.Set;

/**
 * An API key on record. The secret itself is not: only its hash, and its first characters for people to tell keys apart.
 *
 * @param hash hex SHA-256 of the secret, which is random and long, so that no slow hash is needed
 */
public record StoredKey(
        KeyId id,
        ProjectId project,
        String name,
        String hash,
        String shownPrefix,
        Set<Scope> scopes,
        Instant createdAt,
        Optional<Instant> expiresAt) {
    public StoredKey {
        scopes = Set.copyOf(scopes);
    }
}
