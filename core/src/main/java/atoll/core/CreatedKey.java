package atoll.core;

/**
 * A key that was just made.
 *
 * @param secret the key itself; it is told here and never again
 */
public record CreatedKey(ApiKey key, String secret) {
    @Override
    public String toString() {
        return "CreatedKey[" + key.id() + "]";
    }
}
