package atoll.core.store;

/**
 * A request that a caller may send again.
 *
 * @param operation which call the key belongs to
 * @param requestHash of everything the caller sent
 * @param resultId the id that this request gives to what it makes
 */
public record IdempotencyClaim(String operation, String key, String requestHash, String resultId) {}
