package atoll.http;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

class BodyStreamTest {
    private static final byte[] ALPHABET = "abcdefghij".getBytes(StandardCharsets.US_ASCII);

    private final HttpClient client = HttpClient.newHttpClient();
    private final BlockingQueue<Throwable> failures = new LinkedBlockingQueue<>();
    private final AtomicLong taken = new AtomicLong();
    private final Semaphore mayTake = new Semaphore(1 << 20);
    private TestServer server;

    @BeforeEach
    void start() throws IOException {
        server = TestServer.start(RouteTable.builder()
                .put("/sum", this::sum)
                .put("/refused", exchange -> {
                    BodyStream body = exchange.bodyStream();
                    assertThat(body.announcedLength()).isNotNull();
                    throw new HttpFailure(new ErrorReply(409, "conflict", "it is there already", "", ""));
                })
                .get("/header", exchange -> {
                    exchange.responseHeader("X-Long", "x".repeat(40_000));
                    exchange.json(200, "answered");
                })
                .get("/part", exchange -> {
                    Optional<ByteRange> range = exchange.range(ALPHABET.length, "v1");
                    ByteRange part = range.orElse(new ByteRange(0, ALPHABET.length));
                    exchange.responseHeader("Content-Length", Long.toString(part.length()));
                    ByteStream stream = exchange.stream(range.isPresent() ? 206 : 200, "text/plain");
                    if (!exchange.method().equals("HEAD")) {
                        stream.write(ByteBuffer.wrap(ALPHABET, (int) part.first(), (int) part.length()));
                    }
                    stream.finish();
                })
                .build());
    }

    @AfterEach
    void stop() {
        mayTake.release(1 << 20);
        client.shutdownNow();
        server.close();
    }

    private void sum(Exchange exchange) throws IOException, InterruptedException {
        var crc = new CRC32();
        BodyStream body = exchange.bodyStream();
        try {
            Optional<ByteBuffer> piece = body.next();
            while (piece.isPresent()) {
                assertThat(piece.get().remaining()).isBetween(1, 256 << 10);
                taken.addAndGet(piece.get().remaining());
                crc.update(piece.get());
                mayTake.acquire();
                piece = body.next();
            }
        } catch (IOException | HttpFailure e) {
            failures.add(e);
            throw e;
        }
        exchange.json(200, Map.of("bytes", taken.get(), "crc", crc.getValue()));
    }

    private static byte[] pattern(int size) {
        byte[] bytes = new byte[size];
        for (int i = 0; i < size; i++) {
            bytes[i] = (byte) (i * 7 + (i >> 9));
        }
        return bytes;
    }

    @ParameterizedTest
    @EnumSource(HttpClient.Version.class)
    void a_body_beyond_the_limit_of_json_arrives_byte_for_byte(HttpClient.Version version) throws Exception {
        byte[] sent = pattern(5_000_003);
        var crc = new CRC32();
        crc.update(sent);
        for (var publisher : new HttpRequest.BodyPublisher[] {
            BodyPublishers.ofByteArray(sent),
            // Without a length: chunked by HTTP/1.1.
            BodyPublishers.ofInputStream(() -> new java.io.ByteArrayInputStream(sent))
        }) {
            taken.set(0);
            HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + "/sum"))
                    .version(version)
                    .PUT(publisher)
                    .build();
            HttpResponse<String> response = client.send(request, BodyHandlers.ofString());
            assertThat(Json.mapper().readTree(response.body()).get("crc").longValue())
                    .isEqualTo(crc.getValue());
        }
    }

    @Test
    void a_long_header_of_an_answer_goes_out_whole() throws Exception {
        assertThat(raw("GET /header HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
                .startsWith("HTTP/1.1 200 ")
                .contains("X-Long: " + "x".repeat(40_000) + "\r\n")
                .endsWith("\"answered\"");
    }

    @Test
    void an_empty_body_is_empty() throws Exception {
        assertThat(raw("PUT /sum HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
                .contains("\"bytes\":0");
    }

    @Test
    void what_is_not_taken_is_held_back_in_the_client() throws Exception {
        mayTake.drainPermits();
        try (var socket = connect()) {
            OutputStream out = socket.getOutputStream();
            out.write("PUT /sum HTTP/1.1\r\nHost: x\r\nContent-Length: 200000000\r\n\r\n"
                    .getBytes(StandardCharsets.US_ASCII));
            var written = new AtomicLong();
            Thread writer = Thread.startVirtualThread(() -> {
                try {
                    byte[] piece = new byte[1 << 20];
                    while (written.get() < 200_000_000) {
                        out.write(piece);
                        written.addAndGet(piece.length);
                    }
                } catch (IOException _) {
                    // The test has closed the socket.
                }
            });
            long before = -1;
            while (before != written.get()) {
                before = written.get();
                Thread.sleep(500);
            }
            assertThat(written.get()).isLessThan(40_000_000);
            socket.shutdownOutput();
            writer.join();
        }
    }

    @Test
    void a_body_that_comes_slowly_but_steadily_may_take_longer_than_the_time_limit() throws Exception {
        byte[] piece = pattern(80_000);
        int pieces = 6;
        try (var socket = connect()) {
            OutputStream out = socket.getOutputStream();
            out.write(("PUT /sum HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: " + pieces * piece.length
                            + "\r\n\r\n")
                    .getBytes(StandardCharsets.US_ASCII));
            for (int i = 0; i < pieces; i++) {
                Thread.sleep(TestServer.CONFIG.bodyTimeout().toMillis() / 3);
                out.write(piece);
            }
            assertThat(new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8))
                    .contains("\"bytes\":" + pieces * piece.length);
        }
    }

    @Test
    void a_half_open_upload_is_408_and_so_is_one_byte_now_and_then() throws Exception {
        assertThat(raw("PUT /sum HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"))
                .startsWith("HTTP/1.1 408 ");
        assertThat(failures.poll(20, TimeUnit.SECONDS)).isInstanceOf(HttpFailure.class);
        try (var socket = connect()) {
            OutputStream out = socket.getOutputStream();
            out.write("PUT /sum HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
                    .getBytes(StandardCharsets.US_ASCII));
            Thread dripping = Thread.startVirtualThread(() -> {
                try {
                    while (failures.isEmpty()) {
                        out.write('x');
                        Thread.sleep(20);
                    }
                } catch (IOException | InterruptedException _) {
                    // The server has cut it.
                }
            });
            assertThat(failures.poll(20, TimeUnit.SECONDS)).isInstanceOf(HttpFailure.class);
            dripping.interrupt();
            dripping.join();
        }
    }

    @Test
    void a_client_that_goes_away_is_noticed_by_the_reader() throws Exception {
        try (var socket = connect()) {
            socket.getOutputStream()
                    .write("PUT /sum HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc"
                            .getBytes(StandardCharsets.US_ASCII));
            while (taken.get() < 3) {
                Thread.sleep(5);
            }
        }
        assertThat(failures.poll(20, TimeUnit.SECONDS)).isInstanceOf(ClientGoneException.class);
    }

    @Test
    void a_client_that_asks_first_is_told_to_go_on() throws Exception {
        try (var socket = connect()) {
            OutputStream out = socket.getOutputStream();
            String asking = "Content-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n";
            out.write(("PUT /sum HTTP/1.1\r\nHost: x\r\n" + asking).getBytes(StandardCharsets.US_ASCII));
            InputStream in = socket.getInputStream();
            assertThat(new String(in.readNBytes(25), StandardCharsets.US_ASCII))
                    .isEqualToNormalizingNewlines("HTTP/1.1 100 Continue\n\n");
            out.write("abc".getBytes(StandardCharsets.US_ASCII));
            assertThat(new String(in.readAllBytes(), StandardCharsets.UTF_8)).contains("\"bytes\":3");
        }
    }

    @Test
    void a_client_that_asks_first_and_is_refused_is_not_asked_for_its_body() throws Exception {
        String head = "Host: x\r\nContent-Length: 3000000\r\nExpect: 100-continue\r\n\r\n";
        assertThat(raw("PUT /refused HTTP/1.1\r\n" + head)).startsWith("HTTP/1.1 409 ");
        assertThat(raw("PUT /nothing HTTP/1.1\r\n" + head)).startsWith("HTTP/1.1 404 ");
    }

    @ParameterizedTest
    @EnumSource(HttpClient.Version.class)
    void an_early_refusal_is_read_by_a_client_that_is_still_sending(HttpClient.Version version) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + "/refused"))
                .version(version)
                .PUT(BodyPublishers.ofByteArray(pattern(20_000_000)))
                .build();
        assertThat(client.send(request, BodyHandlers.ofString()).statusCode()).isEqualTo(409);
    }

    @ParameterizedTest
    @CsvSource({
        "bytes=0-3, 206, abcd, bytes 0-3/10",
        "bytes=7-, 206, hij, bytes 7-9/10",
        "bytes=-2, 206, ij, bytes 8-9/10",
        "bytes=-99, 206, abcdefghij, bytes 0-9/10",
        "bytes=5-99, 206, fghij, bytes 5-9/10",
        "'bytes=0-1,4-5', 200, abcdefghij, ",
        "bytes=3-2, 200, abcdefghij, ",
        "lines=0-1, 200, abcdefghij, ",
        "bytes=x-y, 200, abcdefghij, ",
    })
    void a_range_gives_its_part(String range, int status, String body, String contentRange) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + "/part"))
                .header("Range", range)
                .build();
        HttpResponse<String> response = client.send(request, BodyHandlers.ofString());
        assertThat(response.statusCode()).isEqualTo(status);
        assertThat(response.body()).isEqualTo(body);
        assertThat(response.headers().firstValue("content-range")).isEqualTo(Optional.ofNullable(contentRange));
        assertThat(response.headers().firstValue("accept-ranges")).contains("bytes");
    }

    @Test
    void a_range_beyond_the_end_is_416_with_the_size() throws Exception {
        for (String range : new String[] {"bytes=10-", "bytes=99999999999999999999-"}) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(server.url() + "/part"))
                    .header("Range", range)
                    .build();
            HttpResponse<String> response = client.send(request, BodyHandlers.ofString());
            assertThat(response.statusCode()).isEqualTo(416);
            assertThat(response.headers().firstValue("content-range")).contains("bytes */10");
        }
    }

    @Test
    void a_range_of_another_version_is_the_whole() throws Exception {
        HttpRequest.Builder request =
                HttpRequest.newBuilder(URI.create(server.url() + "/part")).header("Range", "bytes=0-0");
        assertThat(client.send(request.copy().header("If-Range", "v1").build(), BodyHandlers.ofString())
                        .body())
                .isEqualTo("a");
        assertThat(client.send(request.header("If-Range", "v0").build(), BodyHandlers.ofString())
                        .body())
                .hasSize(10);
    }

    @Test
    void head_has_the_length_and_no_body() throws Exception {
        String answer = raw("HEAD /part HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assertThat(answer)
                .startsWith("HTTP/1.1 200 ")
                .contains("Content-Length: 10\r\n")
                .endsWith("\r\n\r\n");
    }

    private Socket connect() throws IOException {
        var socket = new Socket(InetAddress.getLoopbackAddress(), server.port());
        socket.setSoTimeout(30_000);
        return socket;
    }

    private String raw(String request) throws IOException {
        try (var socket = connect()) {
            socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
            return new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        }
    }
}
