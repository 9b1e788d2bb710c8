package atoll.http;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.function.Predicate;
import org.eclipse.jetty.http.HttpField;
import org.jspecify.annotations.Nullable;

/**
 * Passes requests on to a server on the other end of a byte stream, by HTTP/1.1, and its answers back: bodies of any size piece by piece, server-sent events as they
 * come, and what asks for another protocol (WebSockets) as plain bytes once the server has agreed to it.
 *
 * <p>Headers go through as they are, {@code Host} too; left out are those of a single connection, and those that {@code withheld} names: credentials that are for
 * Atoll and not for the server.
 */
public final class PortProxy {
    private static final int LONGEST_HEAD = 64 << 10;
    private static final int MOST_INTERIM = 8;
    private static final Set<String> OF_ONE_CONNECTION = Set.of(
            "connection",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade");

    private final Predicate<String> withheld;

    /** {@code withheld} is asked with names in lower case. */
    public PortProxy(Predicate<String> withheld) {
        this.withheld = withheld;
    }

    /**
     * Answers the exchange by what the peer says; closes the peer, unless the exchange goes on as another protocol.
     *
     * @param target the path and query to ask for, encoded
     * @throws IOException when the peer ends before it has answered, or answers what is no HTTP
     */
    public void forward(Exchange exchange, PeerConnection peer, String target)
            throws IOException, InterruptedException {
        boolean handedOver = false;
        Thread sender = null;
        try {
            String upgrade = exchange.header("Upgrade");
            BodyStream body = upgrade == null ? exchange.bodyStream() : null;
            boolean chunked =
                    body != null && body.announcedLength().isEmpty() && exchange.header("Transfer-Encoding") != null;
            long length = body == null ? 0 : body.announcedLength().orElse(0);
            peer.send(ByteBuffer.wrap(
                    head(exchange, target, upgrade, chunked, length).getBytes(StandardCharsets.ISO_8859_1)));
            var failure = new Throwable[1];
            if (body != null && (chunked || length > 0)) {
                sender = Thread.ofVirtual().name("proxy-body").start(() -> {
                    try {
                        send(body, peer, chunked);
                    } catch (InterruptedException e) {
                        Thread.currentThread().interrupt();
                    } catch (IOException | RuntimeException e) {
                        failure[0] = e;
                        // Whoever waits for the answer hears of it.
                        peer.close();
                    }
                });
            }
            var answer = new Answer(peer);
            Head head;
            try {
                head = answer.head();
            } catch (IOException e) {
                if (failure[0] instanceof ClientGoneException gone) {
                    throw gone;
                }
                throw e;
            }
            if (head.status == 101 && upgrade != null) {
                exchange.relay(copyHeaders(exchange, head), peer, answer.rest());
                handedOver = true;
                return;
            }
            copyHeaders(exchange, head);
            relayBody(exchange, head, answer);
        } finally {
            if (!handedOver) {
                peer.close();
            }
            if (sender != null) {
                sender.interrupt();
                sender.join();
            }
        }
    }

    private String head(Exchange exchange, String target, @Nullable String upgrade, boolean chunked, long length) {
        var text = new StringBuilder(512);
        text.append(exchange.method()).append(' ').append(target).append(" HTTP/1.1\r\n");
        boolean hasHost = false;
        for (HttpField field : exchange.headerFields()) {
            String name = field.getLowerCaseName();
            if (OF_ONE_CONNECTION.contains(name)
                    || name.equals("content-length")
                    || name.equals("expect")
                    || name.startsWith(":")
                    || withheld.test(name)) {
                continue;
            }
            hasHost |= name.equals("host");
            text.append(field.getName())
                    .append(": ")
                    .append(field.getValue() == null ? "" : field.getValue())
                    .append("\r\n");
        }
        if (!hasHost) {
            text.append("Host: ").append(exchange.host()).append("\r\n");
        }
        if (upgrade != null) {
            text.append("Connection: Upgrade\r\nUpgrade: ").append(upgrade).append("\r\n");
        } else {
            text.append("Connection: close\r\n");
            if (chunked) {
                text.append("Transfer-Encoding: chunked\r\n");
            } else if (length > 0 || exchange.header("Content-Length") != null) {
                text.append("Content-Length: ").append(length).append("\r\n");
            }
        }
        return text.append("\r\n").toString();
    }

    private static void send(BodyStream body, PeerConnection peer, boolean chunked)
            throws IOException, InterruptedException {
        Optional<ByteBuffer> piece = body.next();
        while (piece.isPresent()) {
            ByteBuffer rest = piece.get();
            while (rest.hasRemaining()) {
                int size = Math.min(rest.remaining(), Exchange.PIECE - 64);
                ByteBuffer part = rest.slice(rest.position(), size);
                rest.position(rest.position() + size);
                peer.send(chunked ? chunk(part) : part);
            }
            piece = body.next();
        }
        if (chunked) {
            peer.send(ByteBuffer.wrap("0\r\n\r\n".getBytes(StandardCharsets.US_ASCII)));
        }
    }

    private static ByteBuffer chunk(ByteBuffer data) {
        byte[] size = (Integer.toHexString(data.remaining()) + "\r\n").getBytes(StandardCharsets.US_ASCII);
        ByteBuffer whole = ByteBuffer.allocate(size.length + data.remaining() + 2);
        whole.put(size).put(data).put((byte) '\r').put((byte) '\n');
        return whole.flip();
    }

    private static int copyHeaders(Exchange exchange, Head head) {
        exchange.forgetSecurityHeaders();
        for (Field field : head.fields) {
            String name = field.name.toLowerCase(Locale.ROOT);
            if (head.status == 101 ? name.equals("content-length") : OF_ONE_CONNECTION.contains(name)) {
                continue;
            }
            exchange.addResponseHeader(field.name, field.value);
        }
        return head.status;
    }

    private static void relayBody(Exchange exchange, Head head, Answer answer)
            throws IOException, InterruptedException {
        boolean none = exchange.method().equals("HEAD") || head.status == 204 || head.status == 304;
        ByteStream out = exchange.stream(head.status);
        if (!none) {
            if (head.value("transfer-encoding")
                    .filter(value -> value.toLowerCase(Locale.ROOT).contains("chunked"))
                    .isPresent()) {
                answer.copyChunks(out);
            } else if (head.value("content-length").isPresent()) {
                answer.copy(out, length(head));
            } else {
                answer.copyToEnd(out);
            }
        }
        out.finish();
    }

    private static long length(Head head) throws IOException {
        String text = head.value("content-length").orElse("");
        try {
            long length = Long.parseLong(text.strip());
            if (length >= 0) {
                return length;
            }
        } catch (NumberFormatException _) {
            // Said below.
        }
        throw new IOException("the server's Content-Length is no length");
    }

    private record Field(String name, String value) {}

    private record Head(int status, List<Field> fields) {
        Optional<String> value(String name) {
            return fields.stream()
                    .filter(field -> field.name.equalsIgnoreCase(name))
                    .map(Field::value)
                    .findFirst();
        }
    }

    /** What comes from the peer. */
    private static final class Answer {
        private final PeerConnection peer;
        private ByteBuffer held = ByteBuffer.allocate(0);

        Answer(PeerConnection peer) {
            this.peer = peer;
        }

        /** The final head: those of interim answers (100, 103) are passed over. */
        Head head() throws IOException, InterruptedException {
            for (int interim = 0; interim < MOST_INTERIM; interim++) {
                Head head = oneHead();
                if (head.status >= 200 || head.status == 101) {
                    return head;
                }
            }
            throw new IOException("the server sent interim answers only");
        }

        private Head oneHead() throws IOException, InterruptedException {
            int[] left = {LONGEST_HEAD};
            String first = line(left);
            if (!first.startsWith("HTTP/1.") || first.length() < 12) {
                throw new IOException("the server does not speak HTTP/1.1");
            }
            int status;
            try {
                status = Integer.parseInt(first.substring(9, 12));
            } catch (NumberFormatException e) {
                throw new IOException("the server's status is no number", e);
            }
            if (status < 100 || status > 999) {
                throw new IOException("the server's status is " + status + " (expected: 100 to 999)");
            }
            var fields = new ArrayList<Field>();
            for (String line = line(left); !line.isEmpty(); line = line(left)) {
                int colon = line.indexOf(':');
                if (colon > 0) {
                    fields.add(new Field(
                            line.substring(0, colon).strip(),
                            line.substring(colon + 1).strip()));
                }
            }
            return new Head(status, fields);
        }

        private String line(int[] left) throws IOException, InterruptedException {
            var text = new StringBuilder(80);
            while (true) {
                int c = read();
                if (c == '\n') {
                    int end = text.length();
                    return text.substring(0, end > 0 && text.charAt(end - 1) == '\r' ? end - 1 : end);
                }
                if (--left[0] < 0) {
                    throw new IOException("the server's headers are longer than " + LONGEST_HEAD + " bytes");
                }
                text.append((char) c);
            }
        }

        private int read() throws IOException, InterruptedException {
            if (!more()) {
                throw new EOFException("the server ended the connection before its answer was whole");
            }
            return held.get() & 0xff;
        }

        private boolean more() throws IOException, InterruptedException {
            while (!held.hasRemaining()) {
                Optional<ByteBuffer> piece = peer.receive();
                if (piece.isEmpty()) {
                    return false;
                }
                held = piece.get();
            }
            return true;
        }

        ByteBuffer rest() {
            return held;
        }

        void copy(ByteStream out, long length) throws IOException, InterruptedException {
            long left = length;
            while (left > 0) {
                if (!more()) {
                    throw new EOFException(
                            "the server ended the connection " + left + " bytes before its answer was whole");
                }
                int size = (int) Math.min(left, held.remaining());
                out.write(held.slice(held.position(), size));
                held.position(held.position() + size);
                left -= size;
            }
        }

        void copyToEnd(ByteStream out) throws IOException, InterruptedException {
            while (more()) {
                out.write(held);
                held.position(held.limit());
            }
        }

        void copyChunks(ByteStream out) throws IOException, InterruptedException {
            while (true) {
                String text = line(new int[] {1024});
                int semicolon = text.indexOf(';');
                long size;
                try {
                    size = Long.parseLong((semicolon < 0 ? text : text.substring(0, semicolon)).strip(), 16);
                } catch (NumberFormatException e) {
                    throw new IOException("the server's chunk has no size", e);
                }
                if (size < 0) {
                    throw new IOException("the server's chunk has a size below 0");
                }
                if (size == 0) {
                    // Trailers are of no use to anybody here.
                    int[] left = {LONGEST_HEAD};
                    String trailer = line(left);
                    while (!trailer.isEmpty()) {
                        trailer = line(left);
                    }
                    return;
                }
                copy(out, size);
                String end = line(new int[] {2});
                if (!end.isEmpty()) {
                    throw new IOException("the server's chunk is longer than it says");
                }
            }
        }
    }
}
