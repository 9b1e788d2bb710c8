package atoll.core.store;

import atoll.core.KeyId;
import java.time.Instant;

/**
 * A session of somebody at a browser.
 *
 * @param hash hex SHA-256 of its token, which is random and long
 * @param key whose rights it has
 */
public record StoredSession(String hash, KeyId key, Instant createdAt, Instant expiresAt) {}
