package atoll.core;

import atoll.core.store.Store;
import atoll.core.store.StoredKey;
import atoll.core.store.StoredSession;
import java.security.SecureRandom;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/** Sessions by the hash of their token, looked up in the store each time, so that one that was ended is ended at once. */
final class SessionService implements Sessions {
    private static final Duration CODE_LIFETIME = Duration.ofMinutes(15);
    private static final int MOST_CODES = 1000;
    private static final int MAX_TOKEN = 100;
    private static final SecureRandom RANDOM = new SecureRandom();

    private final Store store;
    private final KeyService keys;
    private final InstantSource clock;

    private record Code(KeyId key, Instant expiresAt) {}

    /** By the hash of the code. Guarded by itself. */
    private final Map<String, Code> codes = new HashMap<>();

    SessionService(Store store, KeyService keys, InstantSource clock) {
        this.store = store;
        this.keys = keys;
        this.clock = clock;
    }

    @Override
    public Opened open(String keySecret) {
        return open(keys.authenticate(keySecret).key());
    }

    private Opened open(KeyId id) {
        Instant now = clock.instant();
        StoredKey key = keys.valid(id).orElseThrow(SessionService::refused);
        Instant end = now.plus(LIFETIME);
        Instant expires = key.expiresAt().filter(end::isAfter).orElse(end);
        String token = random();
        store.removeSessions(now);
        store.insertSession(new StoredSession(KeyService.hash(token), id, now, expires));
        return new Opened(token, session(key, token, expires));
    }

    private static Session session(StoredKey key, String token, Instant expires) {
        // Of the token, so that nothing more must be kept; and the token can't be found from it.
        String formToken = KeyService.hash("form " + token).substring(0, 32);
        return new Session(new Caller(key.project(), key.id(), key.scopes()), key.name(), formToken, expires);
    }

    @Override
    public LoginCode loginCode(Caller caller) {
        Instant now = clock.instant();
        Instant expires = now.plus(CODE_LIFETIME);
        String code = random();
        synchronized (codes) {
            codes.values().removeIf(old -> !now.isBefore(old.expiresAt()));
            if (codes.size() >= MOST_CODES) {
                throw new AtollException(
                        ErrorCode.TOO_MANY_REQUESTS,
                        "There are " + MOST_CODES + " login links that nobody has used.",
                        "",
                        "Use one of them, or wait " + CODE_LIFETIME.toMinutes() + " minutes.");
            }
            codes.put(KeyService.hash(code), new Code(caller.key(), expires));
        }
        return new LoginCode(code, expires);
    }

    @Override
    public Opened redeem(String code) {
        Optional<Code> found;
        synchronized (codes) {
            found = Optional.ofNullable(codes.remove(KeyService.hash(code)));
        }
        return open(found.filter(known -> clock.instant().isBefore(known.expiresAt()))
                .orElseThrow(() -> new AtollException(
                        ErrorCode.UNAUTHENTICATED,
                        "This login link is not good any more.",
                        "It was used, is older than " + CODE_LIFETIME.toMinutes()
                                + " minutes, or the server was started anew since.",
                        "Ask for another one: ./atoll login-link"))
                .key());
    }

    @Override
    public Session authenticate(String token) {
        if (token.isEmpty() || token.length() > MAX_TOKEN) {
            throw refused();
        }
        StoredSession stored = store.sessionByHash(KeyService.hash(token))
                .filter(found -> clock.instant().isBefore(found.expiresAt()))
                .orElseThrow(SessionService::refused);
        StoredKey key = keys.valid(stored.key()).orElseThrow(SessionService::refused);
        return session(key, token, stored.expiresAt());
    }

    @Override
    public void close(String token) {
        store.removeSession(KeyService.hash(token));
    }

    private static String random() {
        byte[] bytes = new byte[32];
        RANDOM.nextBytes(bytes);
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }

    private static AtollException refused() {
        return new AtollException(
                ErrorCode.UNAUTHENTICATED,
                "You are logged out.",
                "The session has ended, or its key was revoked or has expired.",
                "Log in again.");
    }
}
