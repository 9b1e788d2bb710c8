package atoll.core;

import java.time.Duration;
import java.time.Instant;

/** Sessions of people at a browser. Each is bound to an API key: it may do what the key may, and ends with it. Only hashes of tokens are kept. */
public interface Sessions {
    /** A new session. Its token is given out here and never again. */
    record Opened(String token, Session session) {}

    /**
     * A session that is good at this moment.
     *
     * @param keyName what the key is called
     * @param formToken what each form of this session's pages carries, so that no other page can send one
     */
    record Session(Caller caller, String keyName, String formToken, Instant expiresAt) {}

    /** A link's secret, good for one login. */
    record LoginCode(String code, Instant expiresAt) {}

    /** Opens one for whoever holds this key; fails with {@code UNAUTHENTICATED}. */
    Opened open(String keySecret);

    /** A code that opens one session of the caller's key, soon. It is forgotten when the server ends. */
    LoginCode loginCode(Caller caller);

    /** Opens the session that the code is for, which is of no use afterwards; fails with {@code UNAUTHENTICATED}. */
    Opened redeem(String code);

    /** The session of a token; fails with {@code UNAUTHENTICATED} if it, or its key, is not good any more. */
    Session authenticate(String token);

    /** Ends it; nothing happens if there is none. */
    void close(String token);

    /** How long a session lasts. */
    Duration LIFETIME = Duration.ofDays(7);
}
