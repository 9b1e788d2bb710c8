package atoll.http;

import java.io.IOException;
import java.net.BindException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import org.eclipse.jetty.http.HttpField;
import org.eclipse.jetty.http.HttpFields;
import org.eclipse.jetty.http.HttpHeader;
import org.eclipse.jetty.http.HttpVersion;
import org.eclipse.jetty.http.MetaData;
import org.eclipse.jetty.http.PreEncodedHttpField;
import org.eclipse.jetty.http.UriCompliance;
import org.eclipse.jetty.http2.server.HTTP2CServerConnectionFactory;
import org.eclipse.jetty.io.Connection;
import org.eclipse.jetty.io.EndPoint;
import org.eclipse.jetty.server.Connector;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.NetworkConnectionLimit;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.ErrorHandler;
import org.eclipse.jetty.server.handler.GracefulHandler;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.thread.QueuedThreadPool;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves a {@link RouteTable} by HTTP/1.1 and HTTP/2 (prior knowledge or upgrade), and WebSockets by HTTP/1.1, on one port. Each request runs on a virtual thread.
 *
 * <pre>
 *   connector ── GracefulHandler ── Dispatcher ── RouteHandler
 *                                     │ finds the route, answers what it throws
 *                                     └ WebSockets ── WebSocketHandler, on a thread of its own
 * </pre>
 */
public final class HttpServer implements AutoCloseable {
    static final String REQUEST_ID = "X-Request-Id";
    private static final Logger LOG = LoggerFactory.getLogger(HttpServer.class);
    private static final int ACCEPT_QUEUE = 1024;
    private static final int HTTP2_STREAMS = 256;
    private static final int INPUT_BUFFER = 64 << 10;
    private static final int LARGEST_RESPONSE_HEADER = 64 << 10;
    private static final HttpField[] SECURITY_HEADERS = {
        new PreEncodedHttpField(HttpHeader.CACHE_CONTROL, "no-store"),
        new PreEncodedHttpField("X-Content-Type-Options", "nosniff"),
        new PreEncodedHttpField("X-Frame-Options", "DENY"),
        new PreEncodedHttpField("Referrer-Policy", "no-referrer"),
        new PreEncodedHttpField("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    };

    private final Server server;
    private final ServerConnector connector;
    private final WebSockets sockets;

    public HttpServer(
            HttpServerConfig config,
            RouteTable routes,
            ErrorMapping errors,
            RequestObserver observer,
            Optional<AccessLog> accessLog) {
        var threads = new QueuedThreadPool(16, 2);
        threads.setName("http");
        // Unlike Jetty's VirtualThreadPool, without a limit on their number: a request that waits for its code costs
        // nothing but its memory.
        threads.setVirtualThreadsExecutor(Executors.newThreadPerTaskExecutor(
                Thread.ofVirtual().name("http-", 0).factory()));
        server = new Server(threads);
        HttpConfiguration http = httpConfiguration(config);
        var http2 = new Http2FromTheStart(http);
        http2.setMaxConcurrentStreams(HTTP2_STREAMS);
        http2.setStreamIdleTimeout(0);
        var http1 = new HttpConnectionFactory(http);
        // A buffer is held only while bytes are in it. Jetty's 8 KiB would cost an upload 32 reads a piece.
        http1.setInputBufferSize(INPUT_BUFFER);
        connector = new ServerConnector(server, 1, 1, http1, http2);
        // The channel is bound already; these are only shown.
        connector.setHost(config.host());
        connector.setPort(config.port());
        connector.setIdleTimeout(config.idleTimeout().toMillis());
        connector.setAcceptQueueSize(ACCEPT_QUEUE);
        connector.addBean(
                new SlowHeaders(connector.getScheduler(), config.headerTimeout().toNanos()));
        server.addConnector(connector);
        server.addBean(new NetworkConnectionLimit(config.maxConnections(), server));
        server.setErrorHandler(new JsonErrors());
        accessLog.ifPresent(server::setRequestLog);
        sockets = new WebSockets(
                server, connector.getScheduler(), config.writeTimeout().toNanos(), errors);
        server.setHandler(new GracefulHandler(new Dispatcher(config, routes, errors, observer, sockets)));
        server.setStopTimeout(config.stopTimeout().toMillis());
    }

    private static HttpConfiguration httpConfiguration(HttpServerConfig config) {
        var http = new HttpConfiguration();
        http.setSendServerVersion(false);
        http.setSendXPoweredBy(false);
        http.setRequestHeaderSize(config.maxHeaderBytes());
        // Of the longest path inside a sandbox, every character escaped, twice: X-Atoll-File. Grows to that only where
        // it is needed.
        http.setMaxResponseHeaderSize(LARGEST_RESPONSE_HEADER);
        // Encoded slashes and the like reach the routes undecoded: a segment is decoded only after the path was split.
        http.setUriCompliance(UriCompliance.RFC3986.with(
                "ATOLL",
                UriCompliance.Violation.AMBIGUOUS_PATH_SEPARATOR,
                UriCompliance.Violation.AMBIGUOUS_PATH_ENCODING,
                UriCompliance.Violation.AMBIGUOUS_EMPTY_SEGMENT));
        http.setOutputBufferSize(64 << 10);
        return http;
    }

    /**
     * Takes the port, so that whoever starts us can tell that it is free before starting anything else. Connections wait until {@link #start}.
     *
     * @throws BindException when the port is taken
     */
    public static ServerSocketChannel bind(HttpServerConfig config) throws IOException {
        ServerSocketChannel channel = ServerSocketChannel.open();
        try {
            channel.bind(new InetSocketAddress(config.host(), config.port()), ACCEPT_QUEUE);
            return channel;
        } catch (IOException | RuntimeException e) {
            channel.close();
            throw e;
        }
    }

    /** Answers from here on; the channel is the server's now. */
    public void start(ServerSocketChannel bound) throws IOException {
        try {
            connector.open(bound);
            server.start();
        } catch (IOException | RuntimeException e) {
            close();
            throw e;
        } catch (Exception e) {
            close();
            throw new IllegalStateException("the HTTP server did not start", e);
        }
    }

    public int port() {
        return connector.getLocalPort();
    }

    /** Takes no new requests, lets the running ones end within the stop timeout, then closes. */
    @Override
    public void close() {
        sockets.close();
        try {
            server.stop();
        } catch (Exception e) {
            // The process is about to end, and the sockets with it.
            LOG.warn("The HTTP server did not stop cleanly: {}", e.toString());
        }
    }

    /**
     * HTTP/2 without TLS, for clients that begin with it (RFC 9113, 3.3). A request of HTTP/1.1 that asks for the upgrade goes on by HTTP/1.1: the RFC took the upgrade
     * back, and the one that still asks, Java's HttpClient with every first request, now and then took what followed the 101 for a broken frame, while Jetty 12.1.14 took
     * a chunked body for frames.
     */
    private static final class Http2FromTheStart extends HTTP2CServerConnectionFactory {
        Http2FromTheStart(HttpConfiguration configuration) {
            super(configuration);
        }

        @Override
        public @Nullable Connection upgradeConnection(
                Connector connector, EndPoint endPoint, MetaData.Request request, HttpFields.Mutable response) {
            return request.getHttpVersion() == HttpVersion.HTTP_2
                    ? super.upgradeConnection(connector, endPoint, request, response)
                    : null;
        }
    }

    private static final class Dispatcher extends Handler.Abstract {
        private static final String UNMATCHED = "unmatched";

        private final RouteTable routes;
        private final ErrorMapping errors;
        private final RequestObserver observer;
        private final RequestBody body;
        private final long writeTimeoutNanos;
        private final WebSockets sockets;

        Dispatcher(
                HttpServerConfig config,
                RouteTable routes,
                ErrorMapping errors,
                RequestObserver observer,
                WebSockets sockets) {
            this.sockets = sockets;
            this.observer = observer;
            this.routes = routes;
            this.errors = errors;
            this.body = new RequestBody(config);
            this.writeTimeoutNanos = config.writeTimeout().toNanos();
        }

        @Override
        public boolean handle(Request request, Response response, Callback callback) {
            // A run may be silent for as long as its time limit; reads and writes have deadlines of their own.
            request.addIdleTimeoutListener(timeout -> false);
            String requestId = requestId(request);
            HttpFields.Mutable headers = response.getHeaders();
            for (HttpField header : SECURITY_HEADERS) {
                headers.add(header);
            }
            headers.put(REQUEST_ID, requestId);
            Target target = target(request, response, requestId);
            var exchange = new Exchange(
                    request, response, target.name(), target.parameters(), body, writeTimeoutNanos, requestId);
            try {
                target.handler().handle(exchange);
                WebSocketHandler socket = exchange.upgradedTo();
                if (socket != null) {
                    sockets.upgrade(request, response, callback, socket, requestId);
                } else if (exchange.relayed()) {
                    exchange.end();
                    callback.succeeded();
                } else {
                    exchange.end();
                    exchange.drain();
                    callback.succeeded();
                }
            } catch (ClientGoneException e) {
                gone(exchange, callback, e);
            } catch (Throwable e) {
                fail(exchange, callback, e);
            }
            observer.ended(
                    target.name(),
                    request.getMethod(),
                    response.getStatus(),
                    System.nanoTime() - request.getBeginNanoTime());
            return true;
        }

        /** Who answers a request, and as what it counts. */
        private record Target(String name, Map<String, String> parameters, RouteHandler handler) {}

        private Target target(Request request, Response response, String requestId) {
            var unrouted = new Exchange(request, response, UNMATCHED, Map.of(), body, writeTimeoutNanos, requestId);
            Optional<RouteTable.Selection> selected = routes.select(unrouted);
            if (selected.isPresent()) {
                return new Target(
                        selected.get().name(), Map.of(), selected.get().handler());
            }
            return switch (routes.find(request.getMethod(), unrouted.rawPath())) {
                case RouteTable.Match.Found found ->
                    new Target(
                            found.route().pattern(),
                            found.parameters(),
                            found.route().handler());
                case RouteTable.Match.WrongMethod wrong ->
                    unmatched(unrouted, exchange -> {
                        exchange.responseHeader("Allow", wrong.allowed());
                        throw wrongMethod(request, wrong.allowed());
                    });
                case RouteTable.Match.Unknown _ ->
                    unmatched(unrouted, _ -> {
                        throw unknownPath(request);
                    });
            };
        }

        private Target unmatched(Exchange exchange, RouteHandler refusal) {
            return new Target(
                    UNMATCHED,
                    Map.of(),
                    routes.otherwise(exchange.method(), exchange.rawPath()).orElse(refusal));
        }

        private void fail(Exchange exchange, Callback callback, Throwable failure) {
            ErrorReply reply = replyTo(exchange, failure);
            if (!exchange.restart()) {
                // The status is out already; a cut connection is the one way left to say that something went wrong.
                callback.failed(failure);
                return;
            }
            try {
                if (reply.status() == 408) {
                    exchange.responseHeader("Connection", "close");
                }
                exchange.json(reply.status(), ErrorBody.of(reply));
                exchange.drain();
                callback.succeeded();
            } catch (ClientGoneException e) {
                gone(exchange, callback, e);
            } catch (IOException | RuntimeException e) {
                callback.failed(e);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                callback.failed(e);
            }
        }

        private static void gone(Exchange exchange, Callback callback, ClientGoneException cause) {
            if (cause instanceof SlowReaderException) {
                LOG.info("{} dropped: {}", exchange.requestId(), cause.getMessage());
                exchange.cut(cause);
            }
            callback.failed(cause);
        }

        private ErrorReply replyTo(Exchange exchange, Throwable failure) {
            if (failure instanceof HttpFailure known) {
                return known.reply();
            }
            Optional<ErrorReply> mapped = errors.map(failure);
            ErrorReply reply = mapped.orElseGet(() -> new ErrorReply(
                    500,
                    "internal",
                    "the server failed to answer",
                    "",
                    "look for " + exchange.requestId() + " in the server's log; if it happens again, report it"));
            if (reply.status() >= 500 && reply.status() != 503) {
                LOG.error("{} {} failed", exchange.requestId(), exchange.method(), failure);
            }
            return reply;
        }

        private static String requestId(Request request) {
            String given = request.getHeaders().get(REQUEST_ID);
            if (given != null && isRequestId(given)) {
                return given;
            }
            return "req-"
                    + HexFormat.of().toHexDigits(ThreadLocalRandom.current().nextLong());
        }

        private static boolean isRequestId(String text) {
            if (text.isEmpty() || text.length() > 64) {
                return false;
            }
            for (int i = 0; i < text.length(); i++) {
                char c = text.charAt(i);
                boolean ok = (c >= 'a' && c <= 'z')
                        || (c >= 'A' && c <= 'Z')
                        || (c >= '0' && c <= '9')
                        || c == '-'
                        || c == '_'
                        || c == '.';
                if (!ok) {
                    return false;
                }
            }
            return true;
        }

        private static HttpFailure unknownPath(Request request) {
            return new HttpFailure(new ErrorReply(
                    404,
                    "not_found",
                    "there is nothing at " + shown(request),
                    "",
                    "see /openapi.json for what there is"));
        }

        private static HttpFailure wrongMethod(Request request, String allowed) {
            return new HttpFailure(new ErrorReply(
                    405,
                    "method_not_allowed",
                    "%s does not take %s".formatted(shown(request), request.getMethod()),
                    "",
                    "use " + allowed));
        }

        private static String shown(Request request) {
            String path = String.valueOf(request.getHttpURI().getPath());
            return path.length() > 200 ? path.substring(0, 200) + "…" : path;
        }
    }

    /** The wire form of an error. */
    record ErrorBody(Fields error) {
        record Fields(String code, String message, String cause, String remediation) {}

        static ErrorBody of(ErrorReply reply) {
            return new ErrorBody(new Fields(reply.code(), reply.message(), reply.cause(), reply.remediation()));
        }
    }

    /** Answers what Jetty itself refuses (broken requests, headers too large) in the same form as everything else. */
    private static final class JsonErrors extends ErrorHandler {
        @Override
        protected void generateResponse(
                Request request,
                Response response,
                int status,
                @Nullable String message,
                @Nullable Throwable cause,
                Callback callback) {
            response.getHeaders().put(HttpHeader.CONTENT_TYPE, "application/json");
            response.write(true, ByteBuffer.wrap(body(status, message)), callback);
        }

        private static byte[] body(int status, @Nullable String message) {
            String code = switch (status) {
                case 414, 431 -> "headers_too_large";
                case 503 -> "shutting_down";
                default -> status < 500 ? "invalid_request" : "internal";
            };
            String text = message == null ? "the request could not be read" : message;
            return Json.bytes(ErrorBody.of(new ErrorReply(Math.clamp(status, 400, 599), code, text, "", "")));
        }
    }
}
