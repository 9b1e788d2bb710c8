package atoll.compat.e2b;

/**
 * What an installation says of itself to these SDKs.
 *
 * @param domain the ports of sandboxes are served at {@code {port}-{id}.{domain}}; it may have a port of its own
 */
public record E2bSettings(String domain) {}
