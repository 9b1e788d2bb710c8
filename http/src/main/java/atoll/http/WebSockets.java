package atoll.http;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.thread.Scheduler;
import org.eclipse.jetty.websocket.core.CloseStatus;
import org.eclipse.jetty.websocket.core.WebSocketComponents;
import org.eclipse.jetty.websocket.core.server.Handshaker;
import org.eclipse.jetty.websocket.core.server.ServerUpgradeRequest;
import org.eclipse.jetty.websocket.core.server.ServerUpgradeResponse;
import org.eclipse.jetty.websocket.core.server.WebSocketNegotiator;
import org.eclipse.jetty.websocket.core.server.WebSocketServerComponents;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Turns requests into WebSockets, runs their handlers, and closes what is open when the server stops. */
final class WebSockets implements AutoCloseable {
    /** What clients offer that send their key by sub-protocol, and what is selected then. */
    static final String PROTOCOL = "atoll.v1";

    static final String KEY_PROTOCOL = "atoll.bearer.";
    static final String PROTOCOL_HEADER = "Sec-WebSocket-Protocol";

    private static final Logger LOG = LoggerFactory.getLogger(WebSockets.class);
    private static final int INPUT_BUFFER = 16 << 10;
    private static final long STOP_NANOS = Duration.ofSeconds(1).toNanos();

    private final Handshaker handshaker = Handshaker.newInstance();
    private final WebSocketComponents components;
    private final Scheduler scheduler;
    private final long writeTimeoutNanos;
    private final ErrorMapping errors;
    private final Set<WebSocketSession> open = ConcurrentHashMap.newKeySet();

    WebSockets(Server server, Scheduler scheduler, long writeTimeoutNanos, ErrorMapping errors) {
        this.components = WebSocketServerComponents.ensureWebSocketComponents(server);
        this.scheduler = scheduler;
        this.writeTimeoutNanos = writeTimeoutNanos;
        this.errors = errors;
    }

    /** Completes the callback, unless it throws. */
    void upgrade(Request request, Response response, Callback callback, WebSocketHandler handler, String requestId) {
        boolean done = handshaker.upgradeRequest(
                new Negotiator(handler, requestId), request, response, callback, components, configuration -> {
                    // Frames above that size come in parts as they arrive.
                    configuration.setAutoFragment(true);
                    configuration.setMaxFrameSize(WebSocketSession.FRAME);
                    configuration.setInputBufferSize(INPUT_BUFFER);
                    configuration.setIdleTimeout(Duration.ZERO);
                });
        if (!done) {
            throw notAnUpgrade();
        }
    }

    static HttpFailure notAnUpgrade() {
        return new HttpFailure(new ErrorReply(
                426,
                "upgrade_required",
                "this is served by WebSocket only",
                "the request asks for no upgrade, or for another version than 13",
                "connect with a WebSocket client"));
    }

    private final class Negotiator extends WebSocketNegotiator.AbstractNegotiator {
        private final WebSocketHandler handler;
        private final String requestId;

        Negotiator(WebSocketHandler handler, String requestId) {
            this.handler = handler;
            this.requestId = requestId;
        }

        @Override
        public WebSocketSession.Frames negotiate(
                ServerUpgradeRequest request, ServerUpgradeResponse response, Callback callback) {
            // Compression would cost each socket some 300 KiB, and terminals and tunnels gain little.
            response.setExtensions(List.of());
            if (request.getSubProtocols().contains(PROTOCOL)) {
                response.setAcceptedSubProtocol(PROTOCOL);
            }
            return new WebSocketSession.Frames(scheduler, writeTimeoutNanos, new WebSocketSession.Frames.Listener() {
                @Override
                public void opened(WebSocketSession session) {
                    open.add(session);
                    Thread.ofVirtual().name("ws-" + requestId).start(() -> run(session, handler, requestId));
                }

                @Override
                public void ended(WebSocketSession session) {
                    open.remove(session);
                }
            });
        }
    }

    private void run(WebSocketSession session, WebSocketHandler handler, String requestId) {
        try {
            handler.handle(session);
            session.close(CloseStatus.NORMAL, "");
        } catch (ClientGoneException e) {
            LOG.debug("{} {}", requestId, e.getMessage());
            session.close(CloseStatus.NORMAL, "");
        } catch (InterruptedException _) {
            session.close(CloseStatus.SHUTDOWN, "");
            Thread.currentThread().interrupt();
        } catch (Throwable e) {
            fail(session, e, requestId);
        }
    }

    private void fail(WebSocketSession session, Throwable failure, String requestId) {
        Optional<ErrorReply> known =
                failure instanceof HttpFailure http ? Optional.of(http.reply()) : errors.map(failure);
        if (known.isEmpty() || (known.get().status() >= 500 && known.get().status() != 503)) {
            LOG.error("{} failed", requestId, failure);
        }
        int code = known.filter(reply -> reply.status() < 500 || reply.status() == 503 || reply.status() == 507)
                .map(reply -> 4000 + reply.status())
                .orElse(CloseStatus.SERVER_ERROR);
        session.close(
                code,
                known.map(reply -> reply.code() + ": " + reply.message())
                        .orElse("internal: look for " + requestId + " in the server's log"));
    }

    /** Tells every client that the server goes, and gives them a moment to take it. */
    @Override
    public void close() {
        open.forEach(session -> session.close(CloseStatus.SHUTDOWN, "the server stops: connect again"));
        long deadline = System.nanoTime() + STOP_NANOS;
        while (!open.isEmpty() && System.nanoTime() < deadline) {
            LockSupport.parkNanos(5_000_000);
        }
    }
}
