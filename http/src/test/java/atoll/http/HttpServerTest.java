package atoll.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.BindException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.databind.JsonNode;

class HttpServerTest {

    private final HttpClient client = HttpClient.newHttpClient();
    private final BlockingQueue<Throwable> failures = new LinkedBlockingQueue<>();
    private final CountDownLatch release = new CountDownLatch(1);
    private final CountDownLatch entered = new CountDownLatch(1);
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
                .post("/echo", exchange -> exchange.json(200, exchange.readJson()))
                .get("/hello/{name}", exchange -> exchange.json(200, Map.of("hello", exchange.path("name"))))
                .get("/guarded", auth.guard((exchange, caller) -> exchange.json(200, caller)))
                .get("/broken", exchange -> {
                    throw new IllegalStateException("a defect");
                })
                .get("/silent", exchange -> {
                    entered.countDown();
                    assertThat(release.await(20, TimeUnit.SECONDS)).isTrue();
                    exchange.json(200, Map.of());
                })
                .get("/endless", exchange -> {
                    ByteStream bytes = exchange.stream(200, "application/octet-stream");
                    try {
                        while (true) {
                            bytes.write(ByteBuffer.allocate(64 << 10));
                        }
                    } catch (IOException e) {
                        failures.add(e);
                        throw e;
                    }
                })
                .get("/halfway", exchange -> {
                    exchange.stream(200, "text/plain").write(ByteBuffer.wrap(new byte[] {'a'}));
                    throw new IllegalStateException("after the first byte");
                })
                .build());
    }

    @AfterEach
    void stop() {
        release.countDown();
        client.close();
        server.close();
    }

    @ParameterizedTest
    @CsvSource({"Authorization, Bearer good", "authorization, bearer good", "X-API-Key, good"})
    void a_known_key_is_let_through(String header, String value) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + "/guarded"))
                .header(header, value)
                .build();
        assertThat(client.send(request, BodyHandlers.ofString()).body()).isEqualTo("\"the caller\"");
    }

    @ParameterizedTest
    @CsvSource({
        "Authorization, Bearer bad",
        "Authorization, Basic Z29vZA==",
        "X-API-Key, bad",
        "X-Other, good",
        "Authorization, Bearer"
    })
    void other_keys_and_none_are_401(String header, String value) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + "/guarded"))
                .header(header, value)
                .build();
        HttpResponse<String> response = client.send(request, BodyHandlers.ofString());
        assertError(response, 401, "unauthenticated");
        assertThat(response.headers().firstValue("www-authenticate"))
                .get()
                .asString()
                .startsWith("Bearer");
    }

    /** Java's HttpClient asks for h2c with every first request, also one with a body. */
    @ParameterizedTest
    @EnumSource(HttpClient.Version.class)
    void a_wish_to_upgrade_to_http_2_is_passed_over(HttpClient.Version version) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + "/hello/you"))
                .version(version)
                .build();
        HttpResponse<String> response = client.send(request, BodyHandlers.ofString());
        assertThat(response.body()).isEqualTo("{\"hello\":\"you\"}");
        assertThat(response.version()).isEqualTo(HttpClient.Version.HTTP_1_1);
    }

    @Test
    void http_2_is_answered_where_a_client_begins_with_it() throws Exception {
        try (var socket = connect()) {
            OutputStream out = socket.getOutputStream();
            out.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
            // Empty settings; then GET /hello/you on stream 1, in names of the static table and plain values.
            out.write(new byte[] {0, 0, 0, 4, 0, 0, 0, 0, 0});
            var block = new ByteArrayOutputStream();
            block.write(0x82);
            block.write(0x86);
            literal(block, 4, "/hello/you");
            literal(block, 1, "localhost");
            out.write(new byte[] {0, 0, (byte) block.size(), 1, 5, 0, 0, 0, 1});
            out.write(block.toByteArray());
            out.flush();
            var in = new DataInputStream(socket.getInputStream());
            var body = new ByteArrayOutputStream();
            boolean ended = false;
            while (!ended) {
                int length = in.readUnsignedByte() << 16 | in.readUnsignedShort();
                int type = in.readUnsignedByte();
                int flags = in.readUnsignedByte();
                int stream = in.readInt();
                byte[] payload = in.readNBytes(length);
                if (type == 0 && stream == 1) {
                    body.write(payload);
                    ended = (flags & 1) != 0;
                }
            }
            assertThat(body.toString(StandardCharsets.UTF_8)).isEqualTo("{\"hello\":\"you\"}");
        }
    }

    private static void literal(ByteArrayOutputStream block, int name, String value) {
        block.write(name);
        block.write(value.length());
        block.writeBytes(value.getBytes(StandardCharsets.US_ASCII));
    }

    @Test
    void answers_carry_a_request_id_and_security_headers_and_no_server_version() throws Exception {
        HttpResponse<String> response = get("/hello/you");
        assertThat(response.headers().firstValue("x-request-id"))
                .get()
                .asString()
                .startsWith("req-");
        assertThat(response.headers().firstValue("x-content-type-options")).contains("nosniff");
        assertThat(response.headers().firstValue("cache-control")).contains("no-store");
        assertThat(response.headers().firstValue("server")).isEmpty();
    }

    @Test
    void a_callers_request_id_is_kept_if_it_is_harmless() throws Exception {
        assertThat(raw("GET /hello/a HTTP/1.1\r\nHost: x\r\nX-Request-Id: abc-1\r\nConnection: close\r\n\r\n"))
                .contains("X-Request-Id: abc-1\r\n");
        assertThat(raw("GET /hello/a HTTP/1.1\r\nHost: x\r\nX-Request-Id: <script>\r\nConnection: close\r\n\r\n"))
                .contains("X-Request-Id: req-");
    }

    @Test
    void unknown_paths_are_404_in_the_error_form() throws Exception {
        assertError(get("/nothing"), 404, "not_found");
    }

    @Test
    void wrong_methods_are_405_with_the_right_ones() throws Exception {
        HttpResponse<String> response = get("/echo");
        assertError(response, 405, "method_not_allowed");
        assertThat(response.headers().firstValue("allow")).contains("POST");
    }

    @Test
    void a_defect_is_500_without_its_details() throws Exception {
        HttpResponse<String> response = get("/broken");
        assertError(response, 500, "internal");
        assertThat(response.body()).doesNotContain("a defect");
    }

    @Test
    void malformed_json_is_400_with_line_and_column() throws Exception {
        HttpResponse<String> response = post("{\"a\": 1,\n  \"b\": x}");
        assertError(response, 400, "invalid_request");
        assertThat(error(response).get("message").stringValue()).contains("line 2, column 8");
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "{", "{} trailing", "{\"a\":1,\"a\":2}", "{'a':1}"})
    void what_is_not_one_json_document_is_400(String body) throws Exception {
        assertError(post(body), 400, "invalid_request");
    }

    @Test
    void json_that_is_not_utf8_or_nested_without_end_is_400() throws Exception {
        assertError(post(new byte[] {'"', (byte) 0xff, '"'}), 400, "invalid_request");
        assertError(post("[".repeat(100_000)), 400, "invalid_request");
    }

    @Test
    void a_body_over_the_limit_is_413_whether_announced_or_not() throws Exception {
        byte[] body = ("\"" + "x".repeat(3 << 20) + "\"").getBytes(StandardCharsets.US_ASCII);
        assertError(post(body), 413, "request_too_large");
        HttpRequest unannounced = HttpRequest.newBuilder(URI.create(server.url() + "/echo"))
                .POST(BodyPublishers.fromPublisher(BodyPublishers.ofByteArray(body)))
                .build();
        assertError(client.send(unannounced, BodyHandlers.ofString()), 413, "request_too_large");
    }

    @Test
    void a_body_that_comes_with_a_wish_to_upgrade_is_read() throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + "/echo"))
                .version(HttpClient.Version.HTTP_2)
                .POST(BodyPublishers.ofString("{\"a\":1}"))
                .build();
        assertThat(client.send(request, BodyHandlers.ofString()).body()).isEqualTo("{\"a\":1}");
    }

    @Test
    void a_large_body_within_the_limit_arrives_whole() throws Exception {
        String text = "\"" + "é".repeat(400_000) + "\"";
        assertThat(post(text).body()).isEqualTo(text);
    }

    @Test
    void an_upload_that_stalls_is_408_and_its_connection_closed() throws Exception {
        String answer = raw("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"a\":");
        assertThat(answer).startsWith("HTTP/1.1 408 ").contains("request_timeout");
    }

    @Test
    void headers_that_trickle_in_end_the_connection() throws Exception {
        try (var socket = connect()) {
            OutputStream out = socket.getOutputStream();
            out.write("GET /hello/a HTTP/1.1\r\nX: ".getBytes(StandardCharsets.US_ASCII));
            long begin = System.nanoTime();
            assertThatThrownBy(() -> {
                        while (System.nanoTime() - begin < TimeUnit.SECONDS.toNanos(20)) {
                            out.write('y');
                            out.flush();
                            socket.setSoTimeout(50);
                            if (readOrTimeout(socket) < 0) {
                                throw new IOException("closed");
                            }
                        }
                    })
                    .isInstanceOf(IOException.class);
        }
    }

    @Test
    void what_jetty_refuses_by_itself_has_the_error_form_too() throws Exception {
        assertThat(raw("BROKEN\r\n\r\n"))
                .startsWith("HTTP/1.1 400 ")
                .contains("{\"error\":{\"code\":\"invalid_request\"");
        String huge = "GET /hello/a HTTP/1.1\r\nHost: x\r\nX: " + "y".repeat(40_000) + "\r\n\r\n";
        assertThat(raw(huge)).startsWith("HTTP/1.1 431 ").contains("{\"error\":{\"code\":\"headers_too_large\"");
    }

    @Test
    void encoded_slashes_reach_the_route_undecoded() throws Exception {
        assertThat(get("/hello/a%2Fb").body()).isEqualTo("{\"hello\":\"a/b\"}");
    }

    @Test
    void a_reader_that_stops_reading_is_dropped() throws Exception {
        try (var socket = connect()) {
            socket.getOutputStream()
                    .write("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
            assertThat(failures.poll(20, TimeUnit.SECONDS)).isInstanceOf(SlowReaderException.class);
        }
        assertThat(get("/hello/you").statusCode()).isEqualTo(200);
    }

    @Test
    void a_reader_that_stops_reading_is_dropped_on_http_2_too_and_its_neighbours_stay() throws Exception {
        HttpRequest request =
                HttpRequest.newBuilder(URI.create(server.url() + "/endless")).build();
        InputStream unread = client.send(request, BodyHandlers.ofInputStream()).body();
        assertThat(failures.poll(20, TimeUnit.SECONDS)).isInstanceOf(SlowReaderException.class);
        assertThat(get("/hello/you").statusCode()).isEqualTo(200);
        unread.close();
    }

    @Test
    void a_client_that_goes_away_is_noticed_by_the_writer() throws Exception {
        try (var socket = connect()) {
            socket.getOutputStream()
                    .write("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
            assertThat(socket.getInputStream().readNBytes(100_000)).hasSize(100_000);
        }
        assertThat(failures.poll(20, TimeUnit.SECONDS)).isInstanceOf(ClientGoneException.class);
    }

    @Test
    void a_request_may_stay_silent_for_longer_than_the_idle_timeout() throws Exception {
        var answer = client.sendAsync(
                HttpRequest.newBuilder(URI.create(server.url() + "/silent"))
                        .version(HttpClient.Version.HTTP_1_1)
                        .build(),
                BodyHandlers.ofString());
        assertThat(entered.await(10, TimeUnit.SECONDS)).isTrue();
        Thread.sleep(TestServer.CONFIG.idleTimeout().toMillis() * 2);
        release.countDown();
        assertThat(answer.get(10, TimeUnit.SECONDS).statusCode()).isEqualTo(200);
    }

    @Test
    void an_error_after_the_first_byte_cuts_the_answer_so_that_the_reader_can_tell() throws Exception {
        String answer = raw("GET /halfway HTTP/1.1\r\nHost: x\r\n\r\n");
        assertThat(answer).startsWith("HTTP/1.1 200 ").doesNotContain("\r\n0\r\n\r\n");
    }

    @Test
    void a_connection_is_kept_for_the_next_request() throws Exception {
        String twice =
                "GET /hello/a HTTP/1.1\r\nHost: x\r\n\r\nGET /hello/b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        assertThat(raw(twice)).contains("{\"hello\":\"a\"}").contains("{\"hello\":\"b\"}");
    }

    @Test
    void stopping_lets_a_running_request_end() throws Exception {
        var answer = client.sendAsync(
                HttpRequest.newBuilder(URI.create(server.url() + "/silent")).build(), BodyHandlers.ofString());
        assertThat(entered.await(10, TimeUnit.SECONDS)).isTrue();
        Thread stopping = Thread.startVirtualThread(server::close);
        release.countDown();
        assertThat(answer.get(10, TimeUnit.SECONDS).statusCode()).isEqualTo(200);
        stopping.join();
    }

    @Test
    void a_port_that_is_taken_is_said_at_start() {
        HttpServerConfig same = TestServer.CONFIG.listeningOn("127.0.0.1", server.port());
        assertThatThrownBy(() -> HttpServer.bind(same)).isInstanceOf(BindException.class);
    }

    @Test
    void the_access_log_has_a_line_per_request_without_its_query() throws Exception {
        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        try (var log = new AccessLog(lines::add);
                var logged = new HttpServer(
                        TestServer.CONFIG,
                        RouteTable.builder()
                                .get("/x", exchange -> exchange.json(200, 1))
                                .build(),
                        failure -> Optional.empty(),
                        RequestObserver.NONE,
                        Optional.of(log))) {
            logged.start(HttpServer.bind(TestServer.CONFIG));
            URI address = URI.create("http://127.0.0.1:%d/x?key=secret".formatted(logged.port()));
            client.send(HttpRequest.newBuilder(address).build(), BodyHandlers.ofString());
            assertThat(lines.poll(10, TimeUnit.SECONDS))
                    .contains(" GET /x 200 1B ")
                    .doesNotContain("secret");
        }
    }

    private static int readOrTimeout(Socket socket) throws IOException {
        try {
            return socket.getInputStream().read();
        } catch (SocketTimeoutException _) {
            return 0;
        }
    }

    private Socket connect() throws IOException {
        var socket = new Socket(InetAddress.getLoopbackAddress(), server.port());
        socket.setSoTimeout(20_000);
        return socket;
    }

    /** All that comes back until the server closes. */
    private String raw(String request) throws IOException {
        try (var socket = connect()) {
            socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
            return new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    private HttpResponse<String> get(String path) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + path))
                .timeout(Duration.ofSeconds(20))
                .build();
        return client.send(request, BodyHandlers.ofString());
    }

    private HttpResponse<String> post(String body) throws Exception {
        return post(body.getBytes(StandardCharsets.UTF_8));
    }

    private HttpResponse<String> post(byte[] body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + "/echo"))
                .version(HttpClient.Version.HTTP_1_1)
                .POST(BodyPublishers.ofByteArray(body))
                .build();
        return client.send(request, BodyHandlers.ofString());
    }

    private static JsonNode error(HttpResponse<String> response) {
        return Json.mapper().readTree(response.body()).get("error");
    }

    private static void assertError(HttpResponse<String> response, int status, String code) {
        assertThat(response.statusCode()).isEqualTo(status);
        assertThat(response.headers().firstValue("content-type")).contains("application/json");
        assertThat(error(response).get("code").stringValue()).isEqualTo(code);
        assertThat(error(response).propertyNames()).containsExactly("code", "message", "cause", "remediation");
    }
}
