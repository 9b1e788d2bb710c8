package atoll.http;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.eclipse.jetty.http.MultiPart;
import org.eclipse.jetty.io.Content;
import org.jspecify.annotations.Nullable;

/** A {@code multipart/form-data} body, part by part, each of any size: what is not taken is held back in the client. For one thread. */
public final class MultipartReader {
    private static final int MOST_PARTS = 100_000;

    /**
     * One part.
     *
     * @param name of the form's field; empty if it has none
     * @param fileName as the client gave it, slashes and all; empty if it gave none
     */
    public record Part(String name, Optional<String> fileName) {}

    private sealed interface Event {
        record Begin(Part part) implements Event {}

        record Bytes(ByteBuffer data) implements Event {}

        record End() implements Event {}

        record Complete() implements Event {}
    }

    private final BodyStream body;
    private final MultiPart.Parser parser;
    private final Deque<Event> events = new ArrayDeque<>();
    private @Nullable Throwable failure;
    private boolean complete;
    private boolean inPart;

    private MultipartReader(BodyStream body, String boundary) {
        this.body = body;
        parser = new MultiPart.Parser(boundary, new Gatherer());
        parser.setMaxParts(MOST_PARTS);
    }

    /** Of the body of this exchange; fails with a bad request where that is no multipart. */
    public static MultipartReader of(Exchange exchange) {
        String type = exchange.header("Content-Type");
        String boundary = type == null || !type.toLowerCase(Locale.ROOT).startsWith("multipart/")
                ? null
                : MultiPart.extractBoundary(type);
        if (boundary == null) {
            throw HttpFailure.badRequest(
                    "invalid_request",
                    "the request body is no multipart/form-data with a boundary",
                    "send Content-Type: multipart/form-data; boundary=…");
        }
        return new MultipartReader(exchange.bodyStream(), boundary);
    }

    /** Waits for the next part, passing over what is left of this one; empty after the last. */
    public Optional<Part> next() throws IOException, InterruptedException {
        while (inPart) {
            if (content().isEmpty()) {
                break;
            }
        }
        while (true) {
            Event event = event();
            switch (event) {
                case Event.Begin(Part part) -> {
                    inPart = true;
                    return Optional.of(part);
                }
                case Event.Complete _ -> {
                    return Optional.empty();
                }
                case Event.Bytes _, Event.End _ -> inPart = false;
            }
        }
    }

    /** Waits for the next bytes of this part; empty at its end. */
    public Optional<ByteBuffer> content() throws IOException, InterruptedException {
        if (!inPart) {
            return Optional.empty();
        }
        if (event() instanceof Event.Bytes(ByteBuffer data)) {
            return Optional.of(data);
        }
        inPart = false;
        return Optional.empty();
    }

    private Event event() throws IOException, InterruptedException {
        while (events.isEmpty()) {
            if (failure != null) {
                throw broken(String.valueOf(failure.getMessage()));
            }
            if (complete) {
                return new Event.Complete();
            }
            Optional<ByteBuffer> piece = body.next();
            if (piece.isEmpty()) {
                parser.parse(Content.Chunk.EOF);
                if (events.isEmpty() && failure == null && !complete) {
                    throw broken("it ends before its last boundary");
                }
            } else {
                parser.parse(Content.Chunk.from(piece.get(), false));
            }
        }
        return events.remove();
    }

    private static HttpFailure broken(String why) {
        return HttpFailure.badRequest(
                "invalid_request", "the request body is broken: " + why, "send multipart/form-data as RFC 7578 says");
    }

    private final class Gatherer implements MultiPart.Parser.Listener {
        private final Map<String, String> headers = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);

        @Override
        public void onPartBegin() {
            headers.clear();
        }

        @Override
        public void onPartHeader(String name, String value) {
            headers.put(name, value);
        }

        @Override
        public void onPartHeaders() {
            String disposition = headers.getOrDefault("Content-Disposition", "");
            events.add(new Event.Begin(
                    new Part(parameter(disposition, "name").orElse(""), parameter(disposition, "filename"))));
        }

        @Override
        public void onPartContent(Content.Chunk chunk) {
            if (chunk.hasRemaining()) {
                ByteBuffer copy = ByteBuffer.allocate(chunk.remaining());
                copy.put(chunk.getByteBuffer());
                events.add(new Event.Bytes(copy.flip()));
            }
        }

        @Override
        public void onPartEnd() {
            events.add(new Event.End());
        }

        @Override
        public void onComplete() {
            complete = true;
        }

        @Override
        public void onFailure(Throwable cause) {
            failure = cause;
        }
    }

    /** A parameter of a {@code Content-Disposition}: a token, or a quoted text in which a backslash protects only quotes and itself. */
    static Optional<String> parameter(String header, String name) {
        int at = header.indexOf(';');
        while (at >= 0 && at < header.length()) {
            int equals = header.indexOf('=', at);
            if (equals < 0) {
                return Optional.empty();
            }
            String key = header.substring(at + 1, equals).strip();
            int start = equals + 1;
            while (start < header.length() && header.charAt(start) == ' ') {
                start++;
            }
            var value = new StringBuilder();
            int end;
            if (start < header.length() && header.charAt(start) == '"') {
                end = start + 1;
                while (end < header.length() && header.charAt(end) != '"') {
                    char next = end + 1 < header.length() ? header.charAt(end + 1) : ' ';
                    if (header.charAt(end) == '\\' && (next == '"' || next == '\\')) {
                        end++;
                    }
                    value.append(header.charAt(end));
                    end++;
                }
                end = header.indexOf(';', Math.min(end, header.length()));
            } else {
                end = header.indexOf(';', start);
                value.append(
                        header.substring(start, end < 0 ? header.length() : end).strip());
            }
            if (key.equalsIgnoreCase(name)) {
                return Optional.of(value.toString());
            }
            at = end;
        }
        return Optional.empty();
    }
}
