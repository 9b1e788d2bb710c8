package atoll.core;

import atoll.core.store.Store;
import atoll.core.store.StoredKey;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Keys by their hash. A key that was found is trusted for a few seconds without asking the store again. */
final class KeyService implements Keys {
    private static final Duration TRUSTED = Duration.ofSeconds(5);
    private static final int MAX_SECRET = 256;
    private static final int MAX_CACHED = 10_000;

    private final Store store;
    private final InstantSource clock;
    private final Map<String, Known> known = new ConcurrentHashMap<>();

    private record Known(StoredKey key, Caller caller, Instant until) {}

    KeyService(Store store, InstantSource clock) {
        this.store = store;
        this.clock = clock;
    }

    /** Makes sure that this secret opens the default project, with every scope. */
    void ensure(String secret, String name) {
        String hash = hash(secret);
        if (store.keyByHash(hash).isEmpty()) {
            store.insertKey(new StoredKey(
                    KeyId.random(),
                    ProjectId.DEFAULT,
                    name,
                    hash,
                    secret.substring(0, Math.min(8, secret.length())),
                    Set.of(Scope.values()),
                    clock.instant(),
                    Optional.empty()));
        }
    }

    @Override
    public Caller authenticate(String secret) {
        if (secret.isEmpty() || secret.length() > MAX_SECRET) {
            throw refused();
        }
        Instant now = clock.instant();
        String hash = hash(secret);
        Known cached = known.get(hash);
        if (cached == null || now.isAfter(cached.until())) {
            cached = load(hash, now);
        }
        if (cached.key().expiresAt().map(now::isAfter).orElse(false)) {
            throw refused();
        }
        return cached.caller();
    }

    private Known load(String hash, Instant now) {
        known.remove(hash);
        StoredKey key = store.keyByHash(hash).orElseThrow(KeyService::refused);
        if (known.size() >= MAX_CACHED) {
            known.clear();
        }
        Known loaded = new Known(key, new Caller(key.project(), key.id(), key.scopes()), now.plus(TRUSTED));
        known.put(hash, loaded);
        store.keyUsedLater(key.id(), now);
        return loaded;
    }

    /** The key of this id, if it opens anything now. */
    Optional<StoredKey> valid(KeyId id) {
        Instant now = clock.instant();
        return store.key(id).filter(key -> key.expiresAt().map(now::isBefore).orElse(true));
    }

    private static AtollException refused() {
        return new AtollException(
                ErrorCode.UNAUTHENTICATED,
                "The API key is missing or not valid.",
                "No key in this installation matches.",
                "Send `Authorization: Bearer <key>`; the operator's key is in the data folder, in secret/api-key.");
    }

    static String hash(String secret) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(secret.getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(digest);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }
}
