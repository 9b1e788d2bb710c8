package atoll.core;

/** API keys. */
public interface Keys {
    /** The caller behind a secret as it came with the request; fails with {@code UNAUTHENTICATED}, without saying which part was wrong. */
    Caller authenticate(String secret);
}
