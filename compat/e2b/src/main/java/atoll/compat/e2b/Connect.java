package atoll.compat.e2b;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.http.BodyStream;
import atoll.http.ByteStream;
import atoll.http.Exchange;
import atoll.http.HttpFailure;
import atoll.http.Json;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Optional;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/**
 * The Connect protocol with JSON (connectrpc.com/docs/protocol): unary calls are a body each way; in streams each message is preceded by a byte of flags and its length
 * in four bytes, and the last one, with flag 2, says how it ended.
 */
final class Connect {
    private static final Logger LOG = LoggerFactory.getLogger(Connect.class);
    private static final int END = 2;
    private static final int COMPRESSED = 1;
    private static final int LARGEST = 64 << 20;

    private Connect() {}

    /** One method. */
    interface Unary {
        ObjectNode call(JsonNode request) throws IOException, InterruptedException;
    }

    /** A method that answers with any number of messages. */
    interface Streaming {
        void call(Incoming in, Outgoing out) throws IOException, InterruptedException;
    }

    /** A failure with a code of this protocol, where core has none that says as much. */
    static final class Failure extends RuntimeException {
        private static final long serialVersionUID = 1L;

        private final String code;

        Failure(String code, String message) {
            super(message, null, false, false);
            this.code = code;
        }
    }

    /** Messages that come. */
    static final class Incoming {
        private final BodyStream body;
        private ByteBuffer held = ByteBuffer.allocate(0);

        private Incoming(BodyStream body) {
            this.body = body;
        }

        /** Waits for the next; empty at the end. */
        Optional<JsonNode> next() throws IOException, InterruptedException {
            if (!more()) {
                return Optional.empty();
            }
            int flags = held.get() & 0xff;
            byte[] size = take(4);
            int length = ByteBuffer.wrap(size).getInt();
            if (length < 0 || length > LARGEST) {
                throw new Failure("resource_exhausted", "a message of " + Integer.toUnsignedString(length) + " bytes");
            }
            byte[] text = take(length);
            if ((flags & COMPRESSED) != 0) {
                throw new Failure("unimplemented", "compressed messages");
            }
            return (flags & END) != 0 ? Optional.empty() : Optional.of(Json.parse(text, text.length));
        }

        /** The one message of a call that has one. */
        JsonNode only() throws IOException, InterruptedException {
            return next().orElseThrow(() -> new Failure("invalid_argument", "the request has no message"));
        }

        private boolean more() throws IOException, InterruptedException {
            while (!held.hasRemaining()) {
                Optional<ByteBuffer> piece = body.next();
                if (piece.isEmpty()) {
                    return false;
                }
                held = piece.get();
            }
            return true;
        }

        private byte[] take(int count) throws IOException, InterruptedException {
            var taken = new ByteArrayOutputStream(Math.min(count, 64 << 10));
            while (taken.size() < count) {
                if (!more()) {
                    throw new Failure("invalid_argument", "the request ends in the middle of a message");
                }
                byte[] part = new byte[Math.min(count - taken.size(), held.remaining())];
                held.get(part);
                taken.writeBytes(part);
            }
            return taken.toByteArray();
        }
    }

    /** Messages that go; each is sent at once. */
    static final class Outgoing {
        private final Exchange exchange;
        private @org.jspecify.annotations.Nullable ByteStream stream;

        private Outgoing(Exchange exchange) {
            this.exchange = exchange;
        }

        void send(ObjectNode message) throws IOException, InterruptedException {
            write(0, Json.bytes(message));
        }

        private void write(int flags, byte[] text) throws IOException, InterruptedException {
            if (stream == null) {
                exchange.responseHeader("X-Accel-Buffering", "no");
                stream = exchange.stream(200, "application/connect+json");
            }
            ByteBuffer framed = ByteBuffer.allocate(5 + text.length);
            framed.put((byte) flags).putInt(text.length).put(text).flip();
            stream.write(framed);
        }

        private void end(ObjectNode how) throws IOException, InterruptedException {
            write(END, Json.bytes(how));
            ByteStream begun = stream;
            if (begun != null) {
                begun.finish();
            }
        }
    }

    static void unary(Exchange exchange, Unary method) throws IOException, InterruptedException {
        ObjectNode reply;
        try {
            reply = method.call(exchange.readJson());
        } catch (AtollException | HttpFailure | Failure e) {
            ObjectNode error = error(exchange, e);
            exchange.json(status(error.get("code").stringValue()), error);
            return;
        }
        exchange.json(200, reply);
    }

    static void streaming(Exchange exchange, Streaming method) throws IOException, InterruptedException {
        var out = new Outgoing(exchange);
        ObjectNode how = JsonNodeFactory.instance.objectNode();
        try {
            method.call(new Incoming(exchange.bodyStream()), out);
        } catch (AtollException | HttpFailure | Failure e) {
            how.set("error", error(exchange, e));
        }
        out.end(how);
    }

    private static ObjectNode error(Exchange exchange, RuntimeException e) {
        ObjectNode error = JsonNodeFactory.instance.objectNode();
        switch (e) {
            case AtollException known -> {
                if (known.code().fault() == ErrorCode.Fault.OURS) {
                    LOG.error("{} {} failed", exchange.requestId(), exchange.rawPath(), known);
                }
                error.put("code", code(known.code())).put("message", ApiErrors.message(known));
            }
            case Failure failure ->
                error.put("code", failure.code).put("message", String.valueOf(failure.getMessage()));
            case HttpFailure http ->
                error.put("code", http.reply().status() == 413 ? "resource_exhausted" : "invalid_argument")
                        .put("message", http.reply().message());
            default -> throw e;
        }
        return error;
    }

    /** The codes of connectrpc.com for core's. */
    static String code(ErrorCode code) {
        return switch (code) {
            case INVALID_REQUEST, LANGUAGE_NOT_FOUND, LANGUAGE_UNAVAILABLE, REQUEST_TOO_LARGE -> "invalid_argument";
            case UNAUTHENTICATED -> "unauthenticated";
            case FORBIDDEN, PERMISSION_DENIED -> "permission_denied";
            case NOT_FOUND,
                    SNAPSHOT_NOT_FOUND,
                    TEMPLATE_NOT_FOUND,
                    BUILD_NOT_FOUND,
                    IMAGE_NOT_FOUND,
                    CONTEXT_NOT_FOUND,
                    EXECUTION_NOT_FOUND,
                    PROCESS_NOT_FOUND,
                    PROGRAM_NOT_FOUND,
                    FILE_NOT_FOUND,
                    OUTPUT_EXPIRED -> "not_found";
            case FILE_EXISTS -> "already_exists";
            case UNSUPPORTED_BY_RUNTIME -> "unimplemented";
            case CONFLICT, FILE_CONFLICT, SNAPSHOT_UNUSABLE, TEMPLATE_BUILD_FAILED, BUILD_STEP_FAILED ->
                "failed_precondition";
            case TOO_MANY_REQUESTS, QUOTA_EXCEEDED, DISK_FULL, NODE_FULL -> "resource_exhausted";
            case SANDBOX_NOT_FOUND,
                    SANDBOX_ENDED,
                    SANDBOX_PAUSED,
                    NODE_UNAVAILABLE,
                    PORT_CLOSED,
                    IMAGE_UNAVAILABLE,
                    TEMPLATE_BUILDING,
                    SHUTTING_DOWN -> "unavailable";
            case SANDBOX_START_FAILED, INTERNAL -> "internal";
        };
    }

    private static int status(String code) {
        return switch (code) {
            case "invalid_argument", "failed_precondition", "out_of_range" -> 400;
            case "unauthenticated" -> 401;
            case "permission_denied" -> 403;
            case "not_found" -> 404;
            case "already_exists", "aborted" -> 409;
            case "resource_exhausted" -> 429;
            case "unimplemented" -> 501;
            case "unavailable" -> 503;
            case "deadline_exceeded" -> 504;
            default -> 500;
        };
    }
}
