package atoll.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.net.http.WebSocketHandshakeException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class WebSocketTest {
    private static final int LIMIT_SECONDS = 30;

    private final HttpClient client = HttpClient.newHttpClient();
    private final BlockingQueue<String> seen = new LinkedBlockingQueue<>();
    private TestServer server;

    @BeforeEach
    void start() throws IOException {
        var auth = new KeyAuth<String>(key -> {
            if (!key.equals("good")) {
                throw new HttpFailure(new ErrorReply(401, "unauthenticated", "unknown key", "", ""));
            }
            return "the caller";
        });
        server = TestServer.start(RouteTable.builder()
                .get("/echo", auth.guardSocket((exchange, caller) -> this::echo))
                .get("/refused", auth.guardSocket((exchange, caller) -> {
                    throw new HttpFailure(new ErrorReply(409, "conflict", "not now", "because", "wait"));
                }))
                .get("/fails", auth.guardSocket((exchange, caller) -> session -> {
                    throw new HttpFailure(new ErrorReply(404, "file_not_found", "no " + "é".repeat(200), "", ""));
                }))
                .get("/broken", auth.guardSocket((exchange, caller) -> session -> {
                    throw new IllegalStateException("a defect");
                }))
                .get("/endless", auth.guardSocket((exchange, caller) -> this::endless))
                .get("/deaf", auth.guardSocket((exchange, caller) -> session -> {
                    Optional<WebSocketMessage> first = session.receive();
                    seen.add(String.valueOf(first));
                    Thread.sleep(600_000);
                }))
                .build());
    }

    @AfterEach
    void stop() {
        client.shutdownNow();
        server.close();
    }

    private void echo(WebSocketSession session) throws IOException, InterruptedException {
        Optional<WebSocketMessage> message = session.receive();
        while (message.isPresent()) {
            switch (message.get()) {
                case WebSocketMessage.Text(String text) -> {
                    if (text.startsWith("close ")) {
                        session.close(Integer.parseInt(text.substring(6)), "as told");
                    } else {
                        session.sendText(text);
                    }
                }
                case WebSocketMessage.Binary(ByteBuffer bytes) -> session.sendBinary(bytes);
            }
            message = session.receive();
        }
        seen.add("ended");
    }

    private void endless(WebSocketSession session) throws InterruptedException {
        try {
            while (true) {
                session.sendBinary(ByteBuffer.allocate(300_000));
            }
        } catch (IOException e) {
            seen.add(e.getClass().getSimpleName());
        }
    }

    /** Gathers what a server says. */
    private static final class Ears implements WebSocket.Listener {
        final BlockingQueue<String> texts = new LinkedBlockingQueue<>();
        final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        final CompletableFuture<String> closed = new CompletableFuture<>();
        private final StringBuilder text = new StringBuilder();

        @Override
        public CompletionStage<?> onText(WebSocket socket, CharSequence data, boolean last) {
            text.append(data);
            if (last) {
                texts.add(text.toString());
                text.setLength(0);
            }
            socket.request(1);
            return CompletableFuture.completedStage(null);
        }

        @Override
        public CompletionStage<?> onBinary(WebSocket socket, ByteBuffer data, boolean last) {
            synchronized (bytes) {
                byte[] piece = new byte[data.remaining()];
                data.get(piece);
                bytes.writeBytes(piece);
                bytes.notifyAll();
            }
            socket.request(1);
            return CompletableFuture.completedStage(null);
        }

        @Override
        public CompletionStage<?> onClose(WebSocket socket, int code, String reason) {
            closed.complete(code + " " + reason);
            return CompletableFuture.completedStage(null);
        }

        @Override
        public void onError(WebSocket socket, Throwable error) {
            closed.completeExceptionally(error);
        }

        byte[] awaitBytes(int size) throws InterruptedException {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_SECONDS);
            synchronized (bytes) {
                while (bytes.size() < size && System.nanoTime() < end) {
                    bytes.wait(1000);
                }
                return bytes.toByteArray();
            }
        }

        String awaitText() throws InterruptedException {
            return String.valueOf(texts.poll(LIMIT_SECONDS, TimeUnit.SECONDS));
        }

        String awaitClose() throws Exception {
            return closed.get(LIMIT_SECONDS, TimeUnit.SECONDS);
        }
    }

    private URI uri(String path) {
        return URI.create("ws://127.0.0.1:" + server.port() + path);
    }

    private WebSocket connect(String path, Ears ears) {
        return client.newWebSocketBuilder()
                .header("Authorization", "Bearer good")
                .buildAsync(uri(path), ears)
                .join();
    }

    @Test
    void texts_come_back_whole_with_every_character() throws Exception {
        var ears = new Ears();
        WebSocket socket = connect("/echo", ears);
        for (String text : List.of("hello", "", "żółć 🙂 \u0000", "x".repeat(300_000))) {
            socket.sendText(text, true).join();
            assertThat(ears.awaitText()).isEqualTo(text);
        }
        socket.abort();
    }

    @Test
    void a_text_in_fragments_is_one_message_even_if_a_character_is_cut() throws Exception {
        byte[] text = "a🙂z".getBytes(StandardCharsets.UTF_8);
        try (var socket = open("/echo", "Authorization: Bearer good\r\n")) {
            assertThat(head(socket)).startsWith("HTTP/1.1 101 ");
            for (int i = 0; i < text.length; i++) {
                int first = (i == 0 ? 1 : 0) | (i == text.length - 1 ? 0x80 : 0);
                socket.getOutputStream().write(new byte[] {(byte) first, (byte) 0x81, 0, 0, 0, 0, text[i]});
            }
            byte[] answer = new DataInputStream(socket.getInputStream()).readNBytes(2 + text.length);
            assertThat(answer).startsWith((byte) 0x81, (byte) text.length).endsWith(text);
        }
    }

    @Test
    void a_text_that_is_no_utf8_is_closed_with_1007() throws Exception {
        try (var socket = open("/echo", "Authorization: Bearer good\r\n")) {
            assertThat(head(socket)).startsWith("HTTP/1.1 101 ");
            socket.getOutputStream().write(new byte[] {(byte) 0x81, (byte) 0x81, 0, 0, 0, 0, (byte) 0xff});
            byte[] close = new DataInputStream(socket.getInputStream()).readNBytes(4);
            assertThat(ByteBuffer.wrap(close, 2, 2).getShort()).isEqualTo((short) 1007);
        }
    }

    @Test
    void binary_messages_of_any_size_up_to_the_limit_come_back_byte_for_byte() throws Exception {
        var ears = new Ears();
        WebSocket socket = connect("/echo", ears);
        byte[] sent = new byte[3_000_001];
        for (int i = 0; i < sent.length; i++) {
            sent[i] = (byte) (i * 31 + (i >> 8));
        }
        socket.sendBinary(ByteBuffer.wrap(sent), true).join();
        assertThat(ears.awaitBytes(sent.length)).isEqualTo(sent);
        socket.abort();
    }

    @Test
    void a_message_beyond_the_limit_is_closed_with_1009() throws Exception {
        var ears = new Ears();
        WebSocket socket = connect("/echo", ears);
        ByteBuffer piece = ByteBuffer.allocate(1 << 20);
        try {
            for (int i = 0; i < 17; i++) {
                socket.sendBinary(piece.duplicate(), false).join();
            }
        } catch (CompletionException _) {
            // The server may have closed before all of it was sent.
        }
        assertThat(ears.awaitClose()).startsWith("1009 ");
    }

    @Test
    void a_close_is_answered_with_its_code_and_the_handler_learns_of_it() throws Exception {
        var ears = new Ears();
        WebSocket socket = connect("/echo", ears);
        socket.sendClose(1000, "bye").join();
        assertThat(ears.awaitClose()).startsWith("1000");
        assertThat(seen.poll(LIMIT_SECONDS, TimeUnit.SECONDS)).isEqualTo("ended");
    }

    @Test
    void the_server_closes_with_code_and_reason() throws Exception {
        var ears = new Ears();
        connect("/echo", ears).sendText("close 4321", true).join();
        assertThat(ears.awaitClose()).isEqualTo("4321 as told");
    }

    @Test
    void a_connection_that_breaks_ends_the_handler() throws Exception {
        var ears = new Ears();
        connect("/echo", ears).abort();
        assertThat(seen.poll(LIMIT_SECONDS, TimeUnit.SECONDS)).isEqualTo("ended");
    }

    @Test
    void a_failure_after_the_upgrade_is_a_close_code_that_says_which() throws Exception {
        var ears = new Ears();
        connect("/fails", ears).request(1);
        assertThat(ears.awaitClose()).startsWith("4404 file_not_found: no éé").endsWith("…");
        var others = new Ears();
        connect("/broken", others).request(1);
        assertThat(others.awaitClose()).startsWith("1011 internal").doesNotContain("a defect");
    }

    @Test
    void a_key_may_come_as_a_sub_protocol_and_is_never_sent_back() {
        WebSocket socket = client.newWebSocketBuilder()
                .subprotocols("atoll.v1", "atoll.bearer.good")
                .buildAsync(uri("/echo"), new Ears())
                .join();
        assertThat(socket.getSubprotocol()).isEqualTo("atoll.v1");
        socket.abort();
    }

    @ParameterizedTest
    @ValueSource(strings = {"atoll.bearer.bad", "atoll.bearer.", "good", "bearer.good"})
    void other_sub_protocols_are_no_keys(String protocol) {
        var connecting =
                client.newWebSocketBuilder().subprotocols("atoll.v1", protocol).buildAsync(uri("/echo"), new Ears());
        assertThatThrownBy(connecting::join)
                .cause()
                .isInstanceOfSatisfying(
                        WebSocketHandshakeException.class,
                        e -> assertThat(e.getResponse().statusCode()).isEqualTo(401));
    }

    @Test
    void an_error_before_the_upgrade_is_an_ordinary_answer() throws Exception {
        String answer = raw(handshake("/refused", "Authorization: Bearer good\r\n"));
        assertThat(answer)
                .startsWith("HTTP/1.1 409 ")
                .contains("{\"error\":{\"code\":\"conflict\",\"message\":\"not now\",\"cause\":\"because\"");
        assertThat(raw(handshake("/echo", ""))).startsWith("HTTP/1.1 401 ").contains("unauthenticated");
    }

    @Test
    void a_request_without_upgrade_is_426() throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + "/echo"))
                .header("X-API-Key", "good")
                .version(HttpClient.Version.HTTP_1_1)
                .build();
        HttpResponse<String> response = client.send(request, BodyHandlers.ofString());
        assertThat(response.statusCode()).isEqualTo(426);
        assertThat(response.headers().firstValue("upgrade")).contains("websocket");
        assertThat(response.body()).contains("upgrade_required");
    }

    @Test
    void compression_is_declined() throws Exception {
        String extension = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
        try (var socket = open("/echo", "Authorization: Bearer good\r\n" + extension)) {
            assertThat(head(socket)).startsWith("HTTP/1.1 101 ").doesNotContain("permessage-deflate");
        }
    }

    @Test
    void a_ping_is_answered() throws Exception {
        try (var socket = open("/echo", "Authorization: Bearer good\r\n")) {
            assertThat(head(socket)).startsWith("HTTP/1.1 101 ");
            // FIN and PING, masked with zeros.
            socket.getOutputStream().write(new byte[] {(byte) 0x89, (byte) 0x82, 0, 0, 0, 0, 'h', 'i'});
            var in = new DataInputStream(socket.getInputStream());
            assertThat(in.readNBytes(4)).isEqualTo(new byte[] {(byte) 0x8a, 2, 'h', 'i'});
        }
    }

    @Test
    void an_unmasked_frame_is_a_protocol_error() throws Exception {
        try (var socket = open("/echo", "Authorization: Bearer good\r\n")) {
            assertThat(head(socket)).startsWith("HTTP/1.1 101 ");
            socket.getOutputStream().write(new byte[] {(byte) 0x81, 2, 'h', 'i'});
            var in = new DataInputStream(socket.getInputStream());
            byte[] close = in.readNBytes(4);
            assertThat(close[0]).isEqualTo((byte) 0x88);
            assertThat(ByteBuffer.wrap(close, 2, 2).getShort()).isEqualTo((short) 1002);
        }
    }

    @Test
    void a_reader_that_stops_reading_is_dropped_and_its_neighbours_stay() throws Exception {
        try (var socket = open("/endless", "Authorization: Bearer good\r\n")) {
            assertThat(head(socket)).startsWith("HTTP/1.1 101 ");
            assertThat(seen.poll(LIMIT_SECONDS, TimeUnit.SECONDS)).isEqualTo("SlowReaderException");
        }
        var ears = new Ears();
        WebSocket neighbour = connect("/echo", ears);
        neighbour.sendText("still here", true).join();
        assertThat(ears.awaitText()).isEqualTo("still here");
        neighbour.abort();
    }

    @Test
    void what_is_not_received_is_held_back_in_the_client() throws Exception {
        var ears = new Ears();
        WebSocket socket = connect("/deaf", ears);
        ByteBuffer piece = ByteBuffer.allocate(1 << 20);
        CompletableFuture<WebSocket> sending = CompletableFuture.completedFuture(socket);
        int sent = 0;
        while (sent < 64) {
            sending = socket.sendBinary(piece.duplicate(), false);
            try {
                sending.get(1, TimeUnit.SECONDS);
            } catch (java.util.concurrent.TimeoutException _) {
                break;
            }
            sent++;
        }
        assertThat(sent).as("MiB that the server took in without reading them").isLessThan(40);
        socket.abort();
    }

    @Test
    void open_sockets_are_told_when_the_server_stops() throws Exception {
        var ears = new Ears();
        connect("/echo", ears).sendText("x", true).join();
        assertThat(ears.awaitText()).isEqualTo("x");
        server.close();
        assertThat(ears.awaitClose()).startsWith("1001 ");
    }

    @Test
    void a_thousand_idle_sockets_stay_open_and_each_still_answers() throws Exception {
        var sockets = new ArrayList<Socket>();
        try {
            for (int i = 0; i < 1000; i++) {
                Socket socket = open("/echo", "Authorization: Bearer good\r\n");
                sockets.add(socket);
                assertThat(head(socket)).startsWith("HTTP/1.1 101 ");
            }
            Thread.sleep(TestServer.CONFIG.idleTimeout().toMillis() * 2);
            for (Socket socket : sockets) {
                socket.getOutputStream().write(new byte[] {(byte) 0x81, (byte) 0x81, 0, 0, 0, 0, 'x'});
            }
            for (Socket socket : sockets) {
                assertThat(new DataInputStream(socket.getInputStream()).readNBytes(3))
                        .isEqualTo(new byte[] {(byte) 0x81, 1, 'x'});
            }
        } finally {
            for (Socket socket : sockets) {
                socket.close();
            }
        }
    }

    private static String handshake(String path, String headers) {
        return "GET " + path + " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + headers + "\r\n";
    }

    private Socket open(String path, String headers) throws IOException {
        var socket = new Socket(InetAddress.getLoopbackAddress(), server.port());
        socket.setSoTimeout(LIMIT_SECONDS * 1000);
        OutputStream out = socket.getOutputStream();
        out.write(handshake(path, headers).getBytes(StandardCharsets.US_ASCII));
        return socket;
    }

    /** Status line and headers. */
    private static String head(Socket socket) throws IOException {
        var head = new StringBuilder();
        while (!head.toString().endsWith("\r\n\r\n")) {
            int b = socket.getInputStream().read();
            if (b < 0) {
                break;
            }
            head.append((char) b);
        }
        return head.toString();
    }

    private String raw(String request) throws IOException {
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), server.port())) {
            socket.setSoTimeout(LIMIT_SECONDS * 1000);
            socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
            var answer = new StringBuilder(head(socket));
            int at = answer.indexOf("Content-Length: ");
            int length = Integer.parseInt(answer.substring(at + 16, answer.indexOf("\r\n", at)));
            return answer + new String(socket.getInputStream().readNBytes(length), StandardCharsets.UTF_8);
        }
    }
}
