package atoll.http;

/**
 * Serves one WebSocket, on a virtual thread of its own: it may block. When it returns, the socket is closed with 1000; what it throws becomes the close code: 4000 and
 * the HTTP status for a caller's error (4404: not found), 1011 for ours, with {@code code: message} as the reason.
 */
@FunctionalInterface
public interface WebSocketHandler {
    void handle(WebSocketSession session) throws Exception;
}
