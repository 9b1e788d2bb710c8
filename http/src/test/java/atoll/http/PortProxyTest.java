package atoll.http;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PortProxyTest {
    private static final int LIMIT_SECONDS = 30;

    /** Serves one connection of the server behind the proxy. */
    private interface Behind {
        void serve(String head, InputStream in, OutputStream out) throws Exception;
    }

    private final HttpClient client =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final BlockingQueue<String> heads = new LinkedBlockingQueue<>();
    private ServerSocket behind;
    private TestServer server;
    private volatile Behind serves = (head, in, out) -> {};

    @BeforeEach
    void start() throws IOException {
        behind = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        Thread.ofVirtual().start(this::accept);
        var proxy = new PortProxy(name -> name.equals("x-secret"));
        server = TestServer.start(RouteTable.builder()
                .select("port", exchange -> exchange.header("X-Port") != null, exchange -> {
                    String query = exchange.rawQuery();
                    try {
                        proxy.forward(
                                exchange,
                                new SocketPeer(new Socket(behind.getInetAddress(), behind.getLocalPort())),
                                exchange.rawPath() + (query == null ? "" : "?" + query));
                    } catch (ClientGoneException e) {
                        throw e;
                    } catch (IOException e) {
                        throw new HttpFailure(
                                new ErrorReply(502, "bad_gateway", String.valueOf(e.getMessage()), "", ""));
                    }
                })
                .get("/here", exchange -> exchange.json(200, "here"))
                .build());
    }

    @AfterEach
    void stop() throws IOException {
        client.shutdownNow();
        server.close();
        behind.close();
    }

    private void accept() {
        while (!behind.isClosed()) {
            try {
                Socket socket = behind.accept();
                Thread.ofVirtual().start(() -> {
                    try (socket) {
                        String head = readHead(socket.getInputStream());
                        heads.add(head);
                        serves.serve(head, socket.getInputStream(), socket.getOutputStream());
                    } catch (Exception e) {
                        heads.add(e.toString());
                    }
                });
            } catch (IOException e) {
                return;
            }
        }
    }

    private static String readHead(InputStream in) throws IOException {
        var head = new ByteArrayOutputStream();
        while (!head.toString(StandardCharsets.ISO_8859_1).endsWith("\r\n\r\n")) {
            int c = in.read();
            if (c < 0) {
                throw new IOException("ended in the head: " + head);
            }
            head.write(c);
        }
        return head.toString(StandardCharsets.ISO_8859_1);
    }

    private record SocketPeer(Socket socket) implements PeerConnection {
        @Override
        public Optional<ByteBuffer> receive() throws IOException {
            byte[] bytes = new byte[777];
            int n = socket.getInputStream().read(bytes);
            return n < 0 ? Optional.empty() : Optional.of(ByteBuffer.wrap(bytes, 0, n));
        }

        @Override
        public void send(ByteBuffer piece) throws IOException {
            byte[] bytes = new byte[piece.remaining()];
            piece.get(bytes);
            socket.getOutputStream().write(bytes);
        }

        @Override
        public void end() throws IOException {
            socket.shutdownOutput();
        }

        @Override
        public void close() {
            try {
                socket.close();
            } catch (IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
        }
    }

    private HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(server.url() + path)).header("X-Port", "1");
    }

    private HttpResponse<String> send(HttpRequest.Builder request) throws IOException, InterruptedException {
        return client.send(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    private void answers(String text) {
        serves = (head, in, out) -> out.write(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    @Test
    void request_and_answer_go_through_with_their_headers() throws Exception {
        answers(
                "HTTP/1.1 418 Teapot\r\nX-A: 1\r\nX-A: 2\r\nContent-Type: text/x\r\nContent-Length: 5\r\nKeep-Alive: 9\r\n\r\nhello");
        HttpResponse<String> response =
                send(request("/a%2Fb?q=%20x").header("X-B", "b").header("X-Secret", "s"));
        assertThat(response.statusCode()).isEqualTo(418);
        assertThat(response.body()).isEqualTo("hello");
        assertThat(response.headers().allValues("X-A")).containsExactly("1", "2");
        assertThat(response.headers().firstValue("Content-Type")).contains("text/x");
        assertThat(response.headers().firstValue("Keep-Alive")).isEmpty();
        assertThat(response.headers().firstValue("Content-Security-Policy")).isEmpty();
        assertThat(heads.poll(LIMIT_SECONDS, TimeUnit.SECONDS))
                .startsWith("GET /a%2Fb?q=%20x HTTP/1.1\r\n")
                .contains("X-B: b\r\n", "Host: 127.0.0.1:" + server.port(), "Connection: close")
                .doesNotContain("X-Secret");
    }

    @Test
    void what_is_not_selected_goes_to_the_routes() throws Exception {
        assertThat(client.send(
                                HttpRequest.newBuilder(URI.create(server.url() + "/here"))
                                        .build(),
                                HttpResponse.BodyHandlers.ofString())
                        .body())
                .isEqualTo("\"here\"");
    }

    @Test
    void chunks_and_answers_without_length_are_read_to_their_end() throws Exception {
        answers(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nT: 1\r\n\r\n");
        assertThat(send(request("/")).body()).isEqualTo("abc0123456789abcdef");
        answers("HTTP/1.0 200 OK\r\n\r\nuntil the end");
        assertThat(send(request("/")).body()).isEqualTo("until the end");
    }

    @Test
    void answers_without_a_body_end_at_once() throws Exception {
        var leave = new CountDownLatch(1);
        serves = (head, in, out) -> {
            out.write("HTTP/1.1 204 No Content\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
            boolean done = leave.await(LIMIT_SECONDS, TimeUnit.SECONDS);
            assertThat(done).isTrue();
        };
        assertThat(send(request("/")).statusCode()).isEqualTo(204);
        leave.countDown();
        answers("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n");
        assertThat(send(request("/").method("HEAD", HttpRequest.BodyPublishers.noBody()))
                        .statusCode())
                .isEqualTo(200);
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void bodies_larger_than_memory_would_hold_go_through(boolean announced) throws Exception {
        byte[] sent = new byte[3_000_000];
        new java.util.Random(7).nextBytes(sent);
        serves = (head, in, out) -> {
            byte[] got = announced ? in.readNBytes(sent.length) : dechunk(in);
            out.write(("HTTP/1.1 200 OK\r\nContent-Length: " + got.length + "\r\n\r\n")
                    .getBytes(StandardCharsets.US_ASCII));
            out.write(got);
        };
        HttpRequest.BodyPublisher body = announced
                ? HttpRequest.BodyPublishers.ofByteArray(sent)
                : HttpRequest.BodyPublishers.ofInputStream(() -> new java.io.ByteArrayInputStream(sent));
        byte[] back = client.send(request("/").POST(body).build(), HttpResponse.BodyHandlers.ofByteArray())
                .body();
        assertThat(back).isEqualTo(sent);
    }

    private static byte[] dechunk(InputStream in) throws IOException {
        var all = new ByteArrayOutputStream();
        while (true) {
            var line = new StringBuilder();
            for (int c = in.read(); c != '\n'; c = in.read()) {
                line.append((char) c);
            }
            int size = Integer.parseInt(line.toString().strip(), 16);
            all.writeBytes(in.readNBytes(size));
            byte[] end = in.readNBytes(2);
            assertThat(end).containsExactly('\r', '\n');
            if (size == 0) {
                return all.toByteArray();
            }
        }
    }

    @Test
    void events_arrive_while_the_answer_goes_on() throws Exception {
        var seen = new CountDownLatch(1);
        serves = (head, in, out) -> {
            out.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"
                    .getBytes(StandardCharsets.US_ASCII));
            out.flush();
            boolean done = seen.await(LIMIT_SECONDS, TimeUnit.SECONDS);
            assertThat(done).isTrue();
            out.write("data: 2\n\n".getBytes(StandardCharsets.US_ASCII));
        };
        HttpResponse<InputStream> response =
                client.send(request("/").build(), HttpResponse.BodyHandlers.ofInputStream());
        try (InputStream in = response.body()) {
            assertThat(in.readNBytes(9)).asString().isEqualTo("data: 1\n\n");
            seen.countDown();
            assertThat(in.readAllBytes()).asString().isEqualTo("data: 2\n\n");
        }
    }

    @Test
    void another_protocol_is_passed_on_as_bytes_both_ways() throws Exception {
        serves = (head, in, out) -> {
            out.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\nConnection: Upgrade\r\n\r\nfirst!"
                    .getBytes(StandardCharsets.US_ASCII));
            out.flush();
            for (int c = in.read(); c >= 0; c = in.read()) {
                out.write(Character.toUpperCase(c));
                out.flush();
            }
            out.write("bye".getBytes(StandardCharsets.US_ASCII));
        };
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), server.port())) {
            socket.setSoTimeout(LIMIT_SECONDS * 1000);
            socket.getOutputStream()
                    .write(
                            "GET /ws HTTP/1.1\r\nHost: x\r\nX-Port: 1\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\nearly"
                                    .getBytes(StandardCharsets.US_ASCII));
            String head = readHead(socket.getInputStream());
            assertThat(head).startsWith("HTTP/1.1 101").containsIgnoringCase("upgrade: shout");
            assertThat(socket.getInputStream().readNBytes(11)).asString().isEqualTo("first!EARLY");
            socket.getOutputStream().write("later".getBytes(StandardCharsets.US_ASCII));
            assertThat(socket.getInputStream().readNBytes(5)).asString().isEqualTo("LATER");
            socket.shutdownOutput();
            assertThat(socket.getInputStream().readAllBytes()).asString().isEqualTo("bye");
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "HTTP/1.1 200", "nonsense\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 102 x\r\n\r\n"})
    void a_server_that_breaks_off_or_talks_nonsense_is_a_bad_gateway(String text) throws Exception {
        answers(text);
        assertThat(send(request("/")).statusCode()).isEqualTo(502);
    }

    @Test
    void endless_headers_are_cut() throws Exception {
        serves = (head, in, out) -> {
            out.write("HTTP/1.1 200 OK\r\n".getBytes(StandardCharsets.US_ASCII));
            byte[] line = ("X: " + "y".repeat(1000) + "\r\n").getBytes(StandardCharsets.US_ASCII);
            for (int i = 0; i < 1000; i++) {
                out.write(line);
            }
        };
        assertThat(send(request("/")).statusCode()).isEqualTo(502);
    }
}
