package atoll.http;

import java.io.IOException;
import java.net.URLDecoder;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.function.Supplier;
import org.eclipse.jetty.http.HttpCookie;
import org.eclipse.jetty.http.HttpField;
import org.eclipse.jetty.http.HttpFields;
import org.eclipse.jetty.http.HttpHeader;
import org.eclipse.jetty.http.HttpVersion;
import org.eclipse.jetty.http.PreEncodedHttpField;
import org.eclipse.jetty.io.EndPoint;
import org.eclipse.jetty.server.HttpStream;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;

/** One request and its answer. Belongs to the thread that handles it; an answer is given once, whole or as a stream. */
public final class Exchange {
    private static final HttpField JSON = new PreEncodedHttpField(HttpHeader.CONTENT_TYPE, "application/json");
    /** A piece of this size must be taken by the reader within the write timeout. */
    static final int PIECE = 64 << 10;

    private final Request request;
    private final Response response;
    private final String pattern;
    private final Map<String, String> parameters;
    private final RequestBody body;
    private final long writeTimeoutNanos;
    private final String requestId;
    private @Nullable BodyStream bodyStream;
    private @Nullable WebSocketHandler webSocket;
    private boolean answered;
    private boolean relayed;
    private boolean bodyRead;
    private boolean ended;

    Exchange(
            Request request,
            Response response,
            String pattern,
            Map<String, String> parameters,
            RequestBody body,
            long writeTimeoutNanos,
            String requestId) {
        this.request = request;
        this.response = response;
        this.pattern = pattern;
        this.parameters = parameters;
        this.body = body;
        this.writeTimeoutNanos = writeTimeoutNanos;
        this.requestId = requestId;
    }

    public String method() {
        return request.getMethod();
    }

    /** As the client sent it: encoded, and not normalised. */
    public String rawPath() {
        String path = request.getHttpURI().getPath();
        return path == null ? "" : path;
    }

    /** What follows the question mark, encoded; null without one. */
    public @Nullable String rawQuery() {
        return request.getHttpURI().getQuery();
    }

    /** The host that the request is for, without a port; empty if it says none. */
    public String host() {
        String host = Request.getServerName(request);
        return host == null ? "" : host;
    }

    /** The host and port that the request is for, as the client wrote them. */
    public String authority() {
        String authority = header("Host");
        if (authority != null) {
            return authority;
        }
        // HTTP/2 has it in a field of its own.
        String written = request.getHttpURI().getAuthority();
        return written == null ? "" : written;
    }

    /** The address of whoever is at the other end of the connection: a client, or a proxy. */
    public String remoteAddress() {
        return Request.getRemoteAddr(request);
    }

    /** The value of a cookie; null if it was not sent, or more than once with different values. */
    public @Nullable String cookie(String name) {
        @Nullable String found = null;
        for (HttpCookie cookie : Request.getCookies(request)) {
            if (!cookie.getName().equals(name)) {
                continue;
            }
            if (found != null && !found.equals(cookie.getValue())) {
                return null;
            }
            found = cookie.getValue();
        }
        return found;
    }

    public String requestId() {
        return requestId;
    }

    /** That of the route that it takes, as it stands in the table; what takes no route has another name. */
    public String pattern() {
        return pattern;
    }

    /** A parameter of the route's pattern, decoded. */
    public String path(String name) {
        String value = parameters.get(name);
        if (value == null) {
            throw new IllegalArgumentException(
                    "path parameter: %s (expected: one of %s)".formatted(name, parameters.keySet()));
        }
        return value;
    }

    public @Nullable String header(String name) {
        return request.getHeaders().get(name);
    }

    /** The headers whose names begin so, in any case, by the rest of their names; of one that comes twice the first counts. */
    public Map<String, String> headersBeginningWith(String prefix) {
        Map<String, String> found = new LinkedHashMap<>();
        for (HttpField field : request.getHeaders()) {
            if (field.getName().regionMatches(true, 0, prefix, 0, prefix.length()) && field.getValue() != null) {
                found.putIfAbsent(field.getName().substring(prefix.length()), field.getValue());
            }
        }
        return found;
    }

    /** Whether an {@code Accept} header names this type, not counting wildcards. */
    public boolean accepts(String mediaType) {
        for (String value : request.getHeaders().getValuesList(HttpHeader.ACCEPT)) {
            for (String part : value.split(",", -1)) {
                int semicolon = part.indexOf(';');
                String type = (semicolon < 0 ? part : part.substring(0, semicolon)).strip();
                if (type.equalsIgnoreCase(mediaType)) {
                    return true;
                }
            }
        }
        return false;
    }

    /** The first value of a query parameter. */
    public @Nullable String query(String name) {
        String query = request.getHttpURI().getQuery();
        if (query == null) {
            return null;
        }
        for (String pair : query.split("&", -1)) {
            int equals = pair.indexOf('=');
            String key = equals < 0 ? pair : pair.substring(0, equals);
            if (!decodeQuery(key).equals(name)) {
                continue;
            }
            return equals < 0 ? "" : decodeQuery(pair.substring(equals + 1));
        }
        return null;
    }

    /** The names of all query parameters, decoded, in their order. */
    public Set<String> queryNames() {
        String query = request.getHttpURI().getQuery();
        if (query == null) {
            return Set.of();
        }
        Set<String> names = new LinkedHashSet<>();
        for (String pair : query.split("&", -1)) {
            int equals = pair.indexOf('=');
            if (!pair.isEmpty()) {
                names.add(decodeQuery(equals < 0 ? pair : pair.substring(0, equals)));
            }
        }
        return names;
    }

    /** The query parameters whose names begin so, by the rest of their names; of one that comes twice the first counts. */
    public Map<String, String> queriesBeginningWith(String prefix) {
        String query = request.getHttpURI().getQuery();
        if (query == null) {
            return Map.of();
        }
        Map<String, String> found = new LinkedHashMap<>();
        for (String pair : query.split("&", -1)) {
            int equals = pair.indexOf('=');
            String key = decodeQuery(equals < 0 ? pair : pair.substring(0, equals));
            if (key.startsWith(prefix)) {
                found.putIfAbsent(
                        key.substring(prefix.length()), equals < 0 ? "" : decodeQuery(pair.substring(equals + 1)));
            }
        }
        return found;
    }

    public long query(String name, long otherwise, long least, long most) {
        String text = query(name);
        if (text == null) {
            return otherwise;
        }
        try {
            long value = Long.parseLong(text);
            if (value >= least && value <= most) {
                return value;
            }
        } catch (NumberFormatException _) {
            // Said below, with the limits.
        }
        throw HttpFailure.badRequest(
                "invalid_request",
                "%s: '%s' (expected: a whole number from %d to %d)".formatted(name, text, least, most),
                "correct the query parameter");
    }

    public boolean query(String name, boolean otherwise) {
        String text = query(name);
        if (text == null) {
            return otherwise;
        }
        return switch (text) {
            case "true", "1", "" -> true;
            case "false", "0" -> false;
            default ->
                throw HttpFailure.badRequest(
                        "invalid_request",
                        "%s: '%s' (expected: true or false)".formatted(name, text),
                        "correct the query parameter");
        };
    }

    private static String decodeQuery(String raw) {
        try {
            return URLDecoder.decode(raw, StandardCharsets.UTF_8);
        } catch (IllegalArgumentException _) {
            return raw;
        }
    }

    /** The body as JSON. A body that is too large, too slow or not JSON ends the request with the fitting error. */
    public JsonNode readJson() throws IOException, InterruptedException {
        return read().read(request, Json::parse);
    }

    /** The body as JSON, or an empty object where there is none. */
    public JsonNode readJsonIfAny() throws IOException, InterruptedException {
        return read().read(
                        request,
                        (bytes, length) -> length == 0 ? Json.mapper().createObjectNode() : Json.parse(bytes, length));
    }

    /** The fields of a form, in their order. A body that is too large, too slow or no form ends the request with the fitting error. */
    public Form readForm() throws IOException, InterruptedException {
        String type = header("Content-Type");
        if (type == null || !Form.isForm(type)) {
            throw new HttpFailure(new ErrorReply(
                    415,
                    "unsupported_media_type",
                    "Content-Type: '%s' (expected: %s)".formatted(type == null ? "" : type, Form.TYPE),
                    "",
                    "send the form as a browser does"));
        }
        return read().read(request, Form::parse);
    }

    /** The body as it comes, of any size. */
    public BodyStream bodyStream() {
        if (bodyRead) {
            throw new IllegalStateException("the body was taken already");
        }
        BodyStream stream = read().stream(request);
        bodyStream = stream;
        return stream;
    }

    /**
     * The part of something of {@code size} bytes that the request asks for by its {@code Range}; empty for all of it. Answers {@code Content-Range} with it; the
     * status is the caller's to set.
     *
     * @param version a validator that {@code If-Range} is compared with: where it differs, all is meant
     */
    public Optional<ByteRange> range(long size, String version) {
        responseHeader("Accept-Ranges", "bytes");
        String only = header("If-Range");
        if (only != null && !only.equals(version)) {
            return Optional.empty();
        }
        try {
            Optional<ByteRange> range = ByteRange.parse(header("Range"), size);
            range.ifPresent(part -> responseHeader("Content-Range", part.of(size)));
            return range;
        } catch (ByteRange.UnsatisfiableException _) {
            responseHeader("Content-Range", "bytes */" + size);
            throw new HttpFailure(new ErrorReply(
                    416,
                    "range_not_satisfiable",
                    "Range: '%s' (expected: to begin below the size, %d)".formatted(header("Range"), size),
                    "",
                    "ask for a part that is there, or for all of it"));
        }
    }

    /** Answers with a WebSocket, once the route's handler has returned. */
    void upgrade(WebSocketHandler handler) {
        webSocket = handler;
    }

    @Nullable
    WebSocketHandler upgradedTo() {
        return webSocket;
    }

    HttpFields headerFields() {
        return request.getHeaders();
    }

    void addResponseHeader(String name, String value) {
        response.getHeaders().add(name, value);
    }

    /** Those that every answer of ours has: what somebody else answers has its own. */
    void forgetSecurityHeaders() {
        String id = response.getHeaders().get(HttpServer.REQUEST_ID);
        response.getHeaders().clear();
        response.getHeaders().put(HttpServer.REQUEST_ID, id);
    }

    /** Starts an answer whose headers were set before. */
    ByteStream stream(int status) {
        begin(status);
        return new ByteStream(this);
    }

    /**
     * Lets the connection go on as bytes, passed on to and from the peer, once this answer is out.
     *
     * @param early what the peer has sent already beyond its headers
     */
    void relay(int status, PeerConnection peer, ByteBuffer early) {
        begin(status);
        EndPoint endPoint = request.getConnectionMetaData().getConnection().getEndPoint();
        Executor executor = request.getConnectionMetaData().getConnector().getExecutor();
        request.setAttribute(HttpStream.UPGRADE_CONNECTION_ATTRIBUTE, new Relay(endPoint, executor, peer, early));
        relayed = true;
    }

    boolean relayed() {
        return relayed;
    }

    /** Whether the request asks to become a WebSocket. */
    boolean wantsWebSocket() {
        HttpFields headers = request.getHeaders();
        return request.getMethod().equals("GET")
                && headers.contains(HttpHeader.UPGRADE, "websocket")
                && "13".equals(headers.get("Sec-WebSocket-Version"));
    }

    List<String> headerValues(String name) {
        return request.getHeaders().getCSV(name, false);
    }

    public void responseHeader(String name, String value) {
        response.getHeaders().put(name, value);
    }

    /** A header that follows the body of a stream; its value is asked for at the end. */
    public void responseTrailer(String name, Supplier<String> value) {
        response.getHeaders().put(HttpHeader.TRAILER, name);
        response.setTrailersSupplier(() -> HttpFields.build().put(name, value.get()));
    }

    public boolean answered() {
        return answered;
    }

    /** Answers with a JSON document. */
    public void json(int status, Object value) throws IOException, InterruptedException {
        bytes(status, JSON, Json.bytes(value));
    }

    public void bytes(int status, String contentType, byte[] content) throws IOException, InterruptedException {
        bytes(status, new HttpField(HttpHeader.CONTENT_TYPE, contentType), content);
    }

    private void bytes(int status, HttpField contentType, byte[] content) throws IOException, InterruptedException {
        begin(status);
        HttpFields.Mutable headers = response.getHeaders();
        headers.put(contentType);
        headers.put(HttpHeader.CONTENT_LENGTH, content.length);
        var buffer = ByteBuffer.wrap(content);
        while (buffer.remaining() > PIECE) {
            send(false, buffer.slice(buffer.position(), PIECE));
            buffer.position(buffer.position() + PIECE);
        }
        send(true, buffer);
        ended = true;
    }

    /** Answers without a body. */
    public void empty(int status) throws IOException, InterruptedException {
        begin(status);
        send(true, ByteBuffer.allocate(0));
        ended = true;
    }

    /** Starts an answer of unknown length. The headers go out with the first bytes. */
    public ByteStream stream(int status, String contentType) {
        begin(status);
        response.getHeaders().put(HttpHeader.CONTENT_TYPE, contentType);
        return new ByteStream(this);
    }

    /** Starts a stream of server-sent events. */
    public EventStream events() {
        // Proxies that gather answers (nginx) are asked not to.
        response.getHeaders().put("X-Accel-Buffering", "no");
        return new EventStream(stream(200, "text/event-stream"));
    }

    private RequestBody read() {
        bodyRead = true;
        return body;
    }

    private void begin(int status) {
        if (answered) {
            throw new IllegalStateException("the request was answered already");
        }
        if (status != 101 && !bodyRead && !awaitsContinue() && body.skipSmall(request)) {
            bodyRead = true;
        }
        answered = true;
        response.setStatus(status);
    }

    /** To be called once the answer is out: takes what is left of the body, within bounds. */
    void drain() throws InterruptedException {
        BodyStream stream = bodyStream;
        if (stream != null) {
            if (stream.begun() || !awaitsContinue()) {
                stream.drain(RequestBody.DRAIN_BYTES, RequestBody.DRAIN_TIME.toNanos());
            }
            stream.release();
        } else if (!bodyRead && !awaitsContinue() && sendsMore()) {
            body.drain(request);
        }
    }

    private boolean sendsMore() {
        return request.getLength() > 0 || request.getHeaders().contains(HttpHeader.TRANSFER_ENCODING);
    }

    /** Whether the client waits for us to ask for its body. */
    private boolean awaitsContinue() {
        return request.getHeaders().contains(HttpHeader.EXPECT, "100-continue");
    }

    /**
     * Writes one piece and waits until the connection took it.
     *
     * @throws SlowReaderException when the reader does not take it in time; the connection is of no use after that
     */
    void send(boolean last, ByteBuffer piece) throws IOException, InterruptedException {
        var written = new Written();
        response.write(last, piece, written);
        written.await(writeTimeoutNanos);
    }

    void end() throws IOException, InterruptedException {
        if (!ended) {
            ended = true;
            send(true, ByteBuffer.allocate(0));
        }
    }

    /** Throws away an answer that was prepared and not sent, so that an error can be sent instead. False: it is on its way. */
    boolean restart() {
        if (response.isCommitted()) {
            return false;
        }
        answered = false;
        return true;
    }

    /** Cuts the connection of a reader that does not read, with whatever is still to be written. */
    void cut(Throwable cause) {
        if (request.getConnectionMetaData().getHttpVersion() != HttpVersion.HTTP_2) {
            request.getConnectionMetaData().getConnection().getEndPoint().close(cause);
        }
    }
}
