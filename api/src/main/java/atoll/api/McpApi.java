package atoll.api;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.execution.CodeExecution;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionUpdate;
import atoll.core.execution.StandardStream;
import atoll.core.text.Utf8Joiner;
import atoll.http.Ahead;
import atoll.http.ClientGoneException;
import atoll.http.ErrorReply;
import atoll.http.EventStream;
import atoll.http.Exchange;
import atoll.http.HttpFailure;
import atoll.http.Json;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;

/**
 * Model Context Protocol by streamable HTTP, hand-written: the official Java SDK's HTTP transports need servlets, and one tool needs little.
 *
 * <p>Two ages of the protocol. Up to 2025-11-25 a client starts with {@code initialize} and gets a session id, of which the server keeps nothing: it only tells apart whose
 * request a cancellation means, so sessions outlive restarts. Since 2026-07-28 each request carries its version in {@code params._meta}, and closing the answer cancels it.
 */
final class McpApi {
    /** Those of 2024 had another transport in their time, but clients came to send the same messages by this one. */
    private static final List<String> HANDSHAKE =
            List.of("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07");

    private static final List<String> MODERN = List.of("2026-07-28");
    private static final String META_VERSION = "io.modelcontextprotocol/protocolVersion";
    private static final String META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities";
    private static final String META_SERVER = "io.modelcontextprotocol/serverInfo";
    private static final String SESSION = "Mcp-Session-Id";
    private static final String VERSION = "MCP-Protocol-Version";
    private static final byte[] MESSAGE = EventStream.ascii("message");
    /** After so long without an end, the answer becomes a stream, whose comments keep the connection alive. */
    private static final Duration PLAIN_FOR = Duration.ofSeconds(10);

    private static final Duration KEEP_ALIVE = Duration.ofSeconds(15);
    /** Both, where a client cancels by closing the answer: that is only found out by writing to it. */
    private static final Duration NOTICE_CLOSE = Duration.ofSeconds(1);

    /** What the transport's clients send; a wildcard would not cover {@code Authorization}. */
    private static final String PAGE_HEADERS = String.join(
            ", ",
            "Authorization",
            "X-API-Key",
            "Content-Type",
            "Accept",
            "Last-Event-ID",
            SESSION,
            VERSION,
            "Mcp-Method",
            "Mcp-Name");

    private static final Set<String> LOOPBACK = Set.of("localhost", "127.0.0.1", "[::1]", "::1");
    private static final String INSTRUCTIONS =
            "Use code_exec to run code. Pass the sandbox_id of a result to go on with its state; without it you get a fresh sandbox.";

    private static final int PARSE_ERROR = -32700;
    private static final int INVALID_REQUEST = -32600;
    private static final int METHOD_NOT_FOUND = -32601;
    private static final int INVALID_PARAMS = -32602;
    private static final int HEADER_MISMATCH = -32020;
    private static final int UNSUPPORTED_VERSION = -32022;

    private final CodeExecution codeExecution;
    private final String version;
    private final Set<String> allowedOrigins;
    private final ConcurrentMap<Running, Cancellation> running = new ConcurrentHashMap<>();

    /** A call that runs: request ids are only unique within the session of a key. */
    private record Running(String key, String session, String requestId) {}

    /** What interrupts a call, also one whose sandbox is still being made or resumed when the cancellation comes. */
    private static final class Cancellation {
        private volatile boolean cancelled;
        private volatile @Nullable ExecutionHandle handle;

        void cancel() {
            cancelled = true;
            interruptWhatRuns();
        }

        void begun(ExecutionHandle started) {
            handle = started;
            if (cancelled) {
                interruptWhatRuns();
            }
        }

        private void interruptWhatRuns() {
            ExecutionHandle started = handle;
            if (started != null) {
                started.interrupt();
            }
        }
    }

    /** What one message is answered; empty for a notification. */
    private record Reply(int status, Map<String, Object> message) {}

    private static final class McpFailure extends RuntimeException {
        private static final long serialVersionUID = 1L;
        final int code;
        final transient @Nullable Object data;

        McpFailure(int code, String message, @Nullable Object data) {
            super(message, null, false, false);
            this.code = code;
            this.data = data;
        }
    }

    McpApi(CodeExecution codeExecution, String version, List<String> allowedOrigins) {
        this.codeExecution = codeExecution;
        this.version = version;
        this.allowedOrigins = Set.copyOf(allowedOrigins);
    }

    void post(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        checkOrigin(exchange);
        JsonNode body;
        try {
            body = exchange.readJson();
        } catch (HttpFailure e) {
            if (e.reply().status() != 400) {
                throw e;
            }
            exchange.json(
                    400,
                    error(
                            null,
                            new McpFailure(
                                    PARSE_ERROR,
                                    e.reply().message() + ": " + e.reply().cause(),
                                    null)));
            return;
        }
        if (body.isArray()) {
            batch(exchange, caller, body);
            return;
        }
        JsonNode id = idOf(body);
        try {
            checkForm(body);
            boolean modern = checkVersion(exchange, body);
            if (isToolCall(body)) {
                call(exchange, caller, body, modern);
                return;
            }
            Optional<Reply> reply = answer(exchange, caller, body, modern);
            if (reply.isEmpty()) {
                exchange.empty(202);
            } else {
                exchange.json(reply.get().status(), reply.get().message());
            }
        } catch (McpFailure e) {
            exchange.json(statusOf(e, MODERN.contains(String.valueOf(exchange.header(VERSION)))), error(id, e));
        }
    }

    /** What a browser asks before a page's call, without the key: whether the page may make it, and with which headers. */
    void preflight(Exchange exchange) throws IOException, InterruptedException {
        checkOrigin(exchange);
        exchange.responseHeader("Access-Control-Allow-Methods", "POST, DELETE");
        exchange.responseHeader("Access-Control-Allow-Headers", PAGE_HEADERS);
        exchange.responseHeader("Access-Control-Max-Age", "7200");
        exchange.empty(204);
    }

    /** There is no stream of the server's own. A page is to see that, too, or takes the answer for a broken connection. */
    void get(Exchange exchange, Caller caller) {
        checkOrigin(exchange);
        exchange.responseHeader("Allow", "DELETE, OPTIONS, POST");
        throw new HttpFailure(
                new ErrorReply(405, "method_not_allowed", "/mcp does not take GET", "", "use DELETE, OPTIONS, POST"));
    }

    /** Ends a session; there is nothing to end. */
    void delete(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        checkOrigin(exchange);
        exchange.empty(204);
    }

    /** A browser's page may call only from this machine, or from where the operator said: else any page could try, by DNS rebinding. */
    private void checkOrigin(Exchange exchange) {
        String origin = exchange.header("Origin");
        if (origin == null) {
            return;
        }
        if (isAllowed(origin)) {
            exchange.responseHeader("Access-Control-Allow-Origin", origin);
            exchange.responseHeader("Access-Control-Expose-Headers", SESSION + ", WWW-Authenticate");
            exchange.responseHeader("Vary", "Origin");
            return;
        }
        throw new HttpFailure(new ErrorReply(
                403,
                "forbidden",
                "pages of this origin may not call /mcp",
                "",
                "start the server with --allowed-origins"));
    }

    private boolean isAllowed(String origin) {
        if (allowedOrigins.contains(origin)) {
            return true;
        }
        try {
            String host = new URI(origin).getHost();
            return host != null && LOOPBACK.contains(host);
        } catch (URISyntaxException _) {
            return false;
        }
    }

    /** Whether the message is of the age without a handshake; throws if its version is not served. */
    private static boolean checkVersion(Exchange exchange, JsonNode message) {
        String header = exchange.header(VERSION);
        JsonNode meta = message.path("params").path("_meta");
        JsonNode inMeta = meta.path(META_VERSION);
        boolean modern = inMeta.isString() || (header != null && MODERN.contains(header));
        if (!modern) {
            if (header != null && !HANDSHAKE.contains(header)) {
                throw unsupported(header);
            }
            return false;
        }
        if (message.get("id") == null) {
            return true;
        }
        if (!inMeta.isString() || !meta.path(META_CAPABILITIES).isObject()) {
            throw new McpFailure(
                    INVALID_PARAMS, "params._meta must carry " + META_VERSION + " and " + META_CAPABILITIES, null);
        }
        String stated = inMeta.stringValue();
        if (!stated.equals(header)) {
            throw new McpFailure(HEADER_MISMATCH, VERSION + " differs from the version in params._meta", null);
        }
        String method = message.path("method").asString("");
        if (!method.equals(exchange.header("Mcp-Method"))) {
            throw new McpFailure(HEADER_MISMATCH, "Mcp-Method differs from the method", null);
        }
        String name = message.path("params").path("name").asString("");
        if (method.equals("tools/call") && !name.equals(exchange.header("Mcp-Name"))) {
            throw new McpFailure(HEADER_MISMATCH, "Mcp-Name differs from the tool's name", null);
        }
        if (!MODERN.contains(stated)) {
            throw unsupported(stated);
        }
        return true;
    }

    private static void checkForm(JsonNode message) {
        if (!message.isObject() || !message.path("jsonrpc").asString("").equals("2.0")) {
            throw new McpFailure(INVALID_REQUEST, "not a JSON-RPC 2.0 message", null);
        }
        if (message.has("id") && idOf(message) == null) {
            throw new McpFailure(INVALID_REQUEST, "an id is a string or a number", null);
        }
    }

    /** Null where there is none that could be answered. */
    private static @Nullable JsonNode idOf(JsonNode message) {
        JsonNode id = message.get("id");
        return id != null && (id.isString() || id.isNumber()) ? id : null;
    }

    private static McpFailure unsupported(String requested) {
        var supported = new ArrayList<String>(MODERN);
        supported.addAll(HANDSHAKE);
        return new McpFailure(
                UNSUPPORTED_VERSION,
                "unsupported protocol version: " + requested,
                Map.of("supported", supported, "requested", requested));
    }

    private static boolean isToolCall(JsonNode message) {
        return message.get("id") != null && message.path("method").asString("").equals("tools/call");
    }

    /** Batches exist in 2025-03-26 only; what they hold is answered one after the other. */
    private void batch(Exchange exchange, Caller caller, JsonNode messages) throws IOException, InterruptedException {
        if (messages.isEmpty()) {
            exchange.json(400, error(null, new McpFailure(INVALID_REQUEST, "an empty batch", null)));
            return;
        }
        var replies = new ArrayList<Map<String, Object>>();
        for (JsonNode message : messages) {
            JsonNode id = idOf(message);
            try {
                checkForm(message);
                if (isToolCall(message)) {
                    replies.add(message(id, callPlainly(caller, message)));
                } else {
                    answer(exchange, caller, message, false).ifPresent(reply -> replies.add(reply.message()));
                }
            } catch (McpFailure e) {
                replies.add(error(id, e));
            }
        }
        if (replies.isEmpty()) {
            exchange.empty(202);
        } else {
            exchange.json(200, replies);
        }
    }

    private Optional<Reply> answer(Exchange exchange, Caller caller, JsonNode message, boolean modern) {
        JsonNode id = message.get("id");
        String method = message.path("method").asString("");
        if (id == null) {
            notified(exchange, caller, method, message.path("params"));
            return Optional.empty();
        }
        if (method.isEmpty()) {
            // An answer to a request of ours; we make none.
            return Optional.empty();
        }
        Map<String, Object> result = switch (method) {
            case "initialize" -> initialize(exchange, message.path("params"));
            case "server/discover" -> discover();
            case "ping" -> new LinkedHashMap<>();
            case "tools/list" -> tools(modern);
            default -> throw new McpFailure(METHOD_NOT_FOUND, "unknown method: " + method, null);
        };
        if (modern) {
            complete(result);
        }
        return Optional.of(new Reply(200, message(id, result)));
    }

    private Map<String, Object> serverInfo() {
        return ordered("name", "atoll", "title", "Atoll", "version", version);
    }

    private Map<String, Object> initialize(Exchange exchange, JsonNode params) {
        String asked = params.path("protocolVersion").asString("");
        exchange.responseHeader(SESSION, UUID.randomUUID().toString());
        return ordered(
                "protocolVersion",
                HANDSHAKE.contains(asked) ? asked : HANDSHAKE.getFirst(),
                "capabilities",
                Map.of("tools", Map.of()),
                "serverInfo",
                serverInfo(),
                "instructions",
                INSTRUCTIONS);
    }

    private Map<String, Object> discover() {
        return ordered(
                "supportedVersions",
                MODERN,
                "capabilities",
                Map.of("tools", Map.of()),
                "instructions",
                INSTRUCTIONS,
                "ttlMs",
                3_600_000,
                "cacheScope",
                "private");
    }

    private static Map<String, Object> tools(boolean modern) {
        Map<String, Object> result = ordered("tools", List.of(McpTool.description()));
        if (modern) {
            result.put("ttlMs", 3_600_000);
            result.put("cacheScope", "private");
        }
        return result;
    }

    private void complete(Map<String, Object> result) {
        result.put("resultType", "complete");
        result.put("_meta", Map.of(META_SERVER, serverInfo()));
    }

    private void notified(Exchange exchange, Caller caller, String method, JsonNode params) {
        String session = exchange.header(SESSION);
        if (!method.equals("notifications/cancelled") || session == null) {
            return;
        }
        JsonNode requestId = params.get("requestId");
        if (requestId != null) {
            Cancellation call = running.get(new Running(caller.key().toString(), session, requestId.toString()));
            if (call != null) {
                call.cancel();
            }
        }
    }

    private ExecutionHandle start(Caller caller, JsonNode message) throws InterruptedException {
        JsonNode params = message.path("params");
        String name = params.path("name").asString("");
        if (!name.equals(McpTool.NAME)) {
            throw new McpFailure(INVALID_PARAMS, "unknown tool: " + name, null);
        }
        JsonNode arguments = params.get("arguments");
        if (arguments == null) {
            arguments = Json.mapper().createObjectNode();
        }
        return codeExecution.start(caller, CodeExecArguments.byTool(arguments).request(Optional.empty()));
    }

    private Map<String, Object> callPlainly(Caller caller, JsonNode message) throws InterruptedException {
        try (ExecutionHandle handle = start(caller, message)) {
            return McpTool.result(handle.await());
        } catch (AtollException e) {
            return McpTool.refusal(e);
        }
    }

    private void call(Exchange exchange, Caller caller, JsonNode message, boolean modern)
            throws IOException, InterruptedException {
        String session = exchange.header(SESSION);
        var key =
                new Running(caller.key().toString(), session == null ? "" : session, String.valueOf(message.get("id")));
        var cancellation = new Cancellation();
        if (session != null) {
            running.put(key, cancellation);
        }
        try {
            call(exchange, caller, message, modern, cancellation);
        } finally {
            running.remove(key, cancellation);
        }
    }

    private void call(Exchange exchange, Caller caller, JsonNode message, boolean modern, Cancellation cancellation)
            throws IOException, InterruptedException {
        ExecutionHandle handle;
        try {
            handle = start(caller, message);
        } catch (AtollException e) {
            exchange.json(200, message(message.get("id"), finished(McpTool.refusal(e), modern)));
            return;
        }
        cancellation.begun(handle);
        try (var feed = new Ahead<>(handle.executionId().toString(), handle::next, handle::close)) {
            new Call(exchange, message, feed, modern).run();
        } catch (ClientGoneException e) {
            if (modern) {
                // 2026-07-28: closing the answer is how a client cancels. Before, a lost connection means nothing.
                handle.interrupt();
            }
            throw e;
        }
    }

    private Map<String, Object> finished(Map<String, Object> result, boolean modern) {
        if (modern) {
            complete(result);
        }
        return result;
    }

    /** Follows one call to its end: as plain JSON if it is soon over and no progress is wanted, else as a stream. */
    private final class Call {
        private final Exchange exchange;
        private final JsonNode id;
        private final @Nullable JsonNode progressToken;
        private final Ahead<ExecutionUpdate> feed;
        private final boolean modern;
        private final boolean mayStream;
        private final Utf8Joiner stdout = new Utf8Joiner();
        private final Utf8Joiner stderr = new Utf8Joiner();
        private @Nullable EventStream events;
        private long printed;

        Call(Exchange exchange, JsonNode message, Ahead<ExecutionUpdate> feed, boolean modern) {
            this.exchange = exchange;
            this.id = message.path("id");
            JsonNode token = message.path("params").path("_meta").path("progressToken");
            this.progressToken = token.isString() || token.isNumber() ? token : null;
            this.feed = feed;
            this.modern = modern;
            this.mayStream = exchange.accepts("text/event-stream");
        }

        void run() throws IOException, InterruptedException {
            boolean progress = progressToken != null && mayStream;
            if (progress) {
                stream().flush();
            }
            long plainUntil = System.nanoTime() + (modern ? NOTICE_CLOSE : PLAIN_FOR).toNanos();
            while (true) {
                Duration wait = events == null
                        ? Duration.ofNanos(Math.max(0, plainUntil - System.nanoTime()))
                        : (modern ? NOTICE_CLOSE : KEEP_ALIVE);
                ExecutionUpdate update = feed.poll();
                if (update == null) {
                    if (events != null) {
                        events.flush();
                    }
                    update = feed.poll(mayStream ? wait : KEEP_ALIVE);
                }
                switch (update) {
                    case null -> {
                        if (mayStream) {
                            stream().keepAlive();
                        }
                    }
                    case ExecutionUpdate.Finished finished -> {
                        end(McpTool.result(finished.outcome()));
                        return;
                    }
                    case ExecutionUpdate.Output output -> {
                        if (progress) {
                            progress(output);
                        }
                        if (events == null && mayStream && System.nanoTime() > plainUntil) {
                            stream();
                        }
                    }
                    case ExecutionUpdate.Result _, ExecutionUpdate.Gap _ -> {}
                }
            }
        }

        private EventStream stream() {
            if (events == null) {
                events = exchange.events();
            }
            return events;
        }

        private void progress(ExecutionUpdate.Output output) throws IOException, InterruptedException {
            printed += output.data().remaining();
            String text = (output.stream() == StandardStream.STDOUT ? stdout : stderr).decode(output.data());
            Map<String, Object> params = ordered("progressToken", progressToken, "progress", printed, "message", text);
            stream().event(MESSAGE, ordered("jsonrpc", "2.0", "method", "notifications/progress", "params", params));
        }

        private void end(Map<String, Object> result) throws IOException, InterruptedException {
            Map<String, Object> message = message(id, finished(result, modern));
            if (events == null) {
                exchange.json(200, message);
            } else {
                events.event(MESSAGE, message);
                events.finish();
            }
        }
    }

    private static Map<String, Object> message(@Nullable JsonNode id, Map<String, Object> result) {
        return ordered("jsonrpc", "2.0", "id", id, "result", result);
    }

    private static Map<String, Object> error(@Nullable JsonNode id, McpFailure failure) {
        Map<String, Object> error = ordered("code", failure.code, "message", failure.getMessage());
        if (failure.data != null) {
            error.put("data", failure.data);
        }
        return ordered("jsonrpc", "2.0", "id", id, "error", error);
    }

    private static int statusOf(McpFailure failure, boolean modern) {
        return switch (failure.code) {
            case PARSE_ERROR, INVALID_REQUEST, HEADER_MISMATCH, UNSUPPORTED_VERSION -> 400;
            case INVALID_PARAMS, METHOD_NOT_FOUND -> modern ? (failure.code == METHOD_NOT_FOUND ? 404 : 400) : 200;
            default -> 200;
        };
    }

    private static Map<String, Object> ordered(@Nullable Object... namesAndValues) {
        var map = new LinkedHashMap<String, Object>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            Object value = namesAndValues[i + 1];
            map.put(
                    String.valueOf(namesAndValues[i]),
                    value == null ? Json.mapper().nullNode() : value);
        }
        return map;
    }
}
