package atoll.http;

import org.jspecify.annotations.Nullable;

/**
 * Lets only requests with a known API key through, given as {@code Authorization: Bearer KEY} or {@code X-API-Key: KEY}; to a WebSocket, where browsers can set no header,
 * also as a sub-protocol {@code atoll.bearer.KEY} next to {@code atoll.v1}.
 *
 * @param <C> what is known of a caller
 */
public final class KeyAuth<C> extends Guard<C> {
    /**
     * Finds the caller behind a key, or throws what the server's {@link ErrorMapping} turns into an answer. Asked with every request, so it must be quick; it must not
     * say by its time how much of a key was right (a look-up by the key's hash does not).
     */
    @FunctionalInterface
    public interface Lookup<C> {
        C byKey(String key);
    }

    private final Lookup<C> lookup;

    public KeyAuth(Lookup<C> lookup) {
        this.lookup = lookup;
    }

    @Override
    protected C callerOf(Exchange exchange, boolean socket) {
        String key = presentedKey(exchange);
        if (key == null && socket) {
            key = keyInProtocols(exchange);
        }
        if (key == null) {
            exchange.responseHeader("WWW-Authenticate", "Bearer");
            throw new HttpFailure(new ErrorReply(
                    401,
                    "unauthenticated",
                    "no API key was sent",
                    "",
                    "send the header 'Authorization: Bearer <API key>' (or 'X-API-Key: <API key>')"));
        }
        try {
            return lookup.byKey(key);
        } catch (RuntimeException e) {
            exchange.responseHeader("WWW-Authenticate", "Bearer error=\"invalid_token\"");
            throw e;
        }
    }

    private static @Nullable String presentedKey(Exchange exchange) {
        String authorization = exchange.header("Authorization");
        if (authorization != null && authorization.regionMatches(true, 0, "Bearer ", 0, 7)) {
            String key = authorization.substring(7).strip();
            return key.isEmpty() ? null : key;
        }
        String key = exchange.header("X-API-Key");
        return key == null || key.isBlank() ? null : key.strip();
    }

    private static @Nullable String keyInProtocols(Exchange exchange) {
        for (String protocol : exchange.headerValues(WebSockets.PROTOCOL_HEADER)) {
            if (protocol.startsWith(WebSockets.KEY_PROTOCOL)) {
                return protocol.substring(WebSockets.KEY_PROTOCOL.length());
            }
        }
        return null;
    }
}
