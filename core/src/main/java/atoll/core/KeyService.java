package atoll.core;

import atoll.core.store.Store;
import atoll.core.store.StoredKey;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/**
 * Keys by their hash. A key that was found is trusted for a few seconds without asking the store again; one that is revoked is not. When
 * keys were used goes on record once a minute.
 */
final class KeyService implements Keys {
    private static final Duration TRUSTED = Duration.ofSeconds(5);
    private static final Duration USE_NOTED = Duration.ofMinutes(1);
    private static final int MAX_SECRET = 256;
    private static final int MAX_CACHED = 10_000;
    private static final int MAX_KEYS = 1000;
    private static final int SECRET_BYTES = 32;
    private static final int SHOWN_CHARS = 12;

    private final Store store;
    private final InstantSource clock;
    private final SecureRandom random = new SecureRandom();
    private final Map<String, Known> known = new ConcurrentHashMap<>();
    private final Map<KeyId, Instant> used = new ConcurrentHashMap<>();

    /** Also of those that somebody was just loading when they were revoked. */
    private final Set<KeyId> revoked = ConcurrentHashMap.newKeySet();

    private volatile Optional<String> operatorsHash = Optional.empty();

    private record Known(StoredKey key, Caller caller, Instant until) {}

    KeyService(Store store, InstantSource clock) {
        this.store = store;
        this.clock = clock;
    }

    /** Makes sure that this secret opens the default project, with every scope. */
    void ensure(String secret, String name) {
        String hash = hash(secret);
        operatorsHash = Optional.of(hash);
        if (store.keyByHash(hash).isEmpty()) {
            store.insertKey(new StoredKey(
                    KeyId.random(),
                    ProjectId.DEFAULT,
                    name,
                    hash,
                    shown(secret),
                    Set.of(Scope.values()),
                    clock.instant(),
                    Optional.empty()));
        }
    }

    private static String shown(String secret) {
        // Of a short one that somebody chose, less would be left to guess.
        return secret.substring(0, Math.min(SHOWN_CHARS, secret.length() / 3));
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
        if (cached.key().expiresAt().map(now::isAfter).orElse(false)
                || revoked.contains(cached.key().id())) {
            throw refused();
        }
        return cached.caller();
    }

    private Known load(String hash, Instant now) {
        known.remove(hash);
        StoredKey key = store.keyByHash(hash).orElseThrow(KeyService::refused);
        if (known.size() >= MAX_CACHED) {
            known.clear();
            used.clear();
        }
        Known loaded = new Known(key, new Caller(key.project(), key.id(), key.scopes()), now.plus(TRUSTED));
        known.put(hash, loaded);
        Instant noted = used.get(key.id());
        if (noted == null || now.isAfter(noted.plus(USE_NOTED))) {
            used.put(key.id(), now);
            store.keyUsedLater(key.id(), now);
        }
        return loaded;
    }

    /** The key of this id, if it opens anything now. */
    Optional<StoredKey> valid(KeyId id) {
        Instant now = clock.instant();
        return store.key(id).filter(key -> key.expiresAt().map(now::isBefore).orElse(true));
    }

    @Override
    public CreatedKey create(Caller caller, CreateKey request) {
        caller.require(Scope.ADMIN);
        Set<String> more = request.scopes().stream()
                .filter(scope -> !caller.scopes().contains(scope))
                .map(scope -> scope.name().toLowerCase(Locale.ROOT))
                .collect(Collectors.toSet());
        if (!more.isEmpty()) {
            throw new AtollException(
                    ErrorCode.FORBIDDEN,
                    "scopes: " + more + " (expected: scopes of the key that makes it)",
                    "A key can't allow more than the key that makes it.",
                    "Leave these out, or use a key that has them.");
        }
        Instant now = clock.instant();
        request.expiresAt().filter(at -> !at.isAfter(now)).ifPresent(at -> {
            throw AtollException.invalid("expires_at: " + at + " (expected: a time to come)", "Name a later time.");
        });
        if (store.keys(caller.project()).size() >= MAX_KEYS) {
            throw new AtollException(
                    ErrorCode.CONFLICT,
                    "keys: " + MAX_KEYS + " are there already (expected: fewer)",
                    "",
                    "Revoke keys that nobody uses.");
        }
        byte[] bytes = new byte[SECRET_BYTES];
        random.nextBytes(bytes);
        String secret = "atoll_" + Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
        StoredKey key = new StoredKey(
                KeyId.random(),
                caller.project(),
                request.name(),
                hash(secret),
                shown(secret),
                request.scopes(),
                now,
                request.expiresAt());
        store.insertKey(key);
        return new CreatedKey(
                new ApiKey(
                        key.id(),
                        key.project(),
                        key.name(),
                        key.shownPrefix(),
                        key.scopes(),
                        key.createdAt(),
                        key.expiresAt(),
                        Optional.empty()),
                secret);
    }

    @Override
    public List<ApiKey> list(Caller caller) {
        caller.require(Scope.ADMIN);
        return store.keys(caller.project());
    }

    @Override
    public ApiKey get(Caller caller, KeyId id) {
        return list(caller).stream()
                .filter(key -> key.id().equals(id))
                .findFirst()
                .orElseThrow(() -> new AtollException(
                        ErrorCode.NOT_FOUND,
                        "key: " + id + " was not found",
                        "There is none of that id in this project, or it was revoked.",
                        "GET /v1/keys lists those that are there."));
    }

    @Override
    public void revoke(Caller caller, KeyId id) {
        ApiKey key = get(caller, id);
        if (operatorsHash.flatMap(store::keyByHash).map(StoredKey::id).equals(Optional.of(key.id()))) {
            throw new AtollException(
                    ErrorCode.CONFLICT,
                    "key: " + id + " is the operator's",
                    "The next start would make it again: it is what the data folder says, in secret/api-key.",
                    "Put another key into that file, restart the server, and revoke this one then.");
        }
        revoked.add(id);
        store.removeKey(caller.project(), id);
        known.values().removeIf(there -> there.key().id().equals(id));
        used.remove(id);
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
