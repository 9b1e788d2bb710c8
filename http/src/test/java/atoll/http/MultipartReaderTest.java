package atoll.http;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Optional;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class MultipartReaderTest {
    private final HttpClient client = HttpClient.newHttpClient();
    private TestServer server;

    @BeforeEach
    void start() throws IOException {
        server = TestServer.start(RouteTable.builder()
                .post("/form", exchange -> {
                    var reader = MultipartReader.of(exchange);
                    var told = new StringBuilder();
                    Optional<MultipartReader.Part> part = reader.next();
                    while (part.isPresent()) {
                        MessageDigest digest = MessageDigest.getInstance("SHA-256");
                        long size = 0;
                        boolean skip = part.get().name().equals("skip");
                        Optional<ByteBuffer> piece = skip ? Optional.empty() : reader.content();
                        while (piece.isPresent()) {
                            size += piece.get().remaining();
                            digest.update(piece.get());
                            piece = reader.content();
                        }
                        told.append("%s|%s|%d|%s\n"
                                .formatted(
                                        part.get().name(),
                                        part.get().fileName().orElse("-"),
                                        size,
                                        HexFormat.of().formatHex(digest.digest(), 0, 4)));
                        part = reader.next();
                    }
                    exchange.bytes(200, "text/plain", told.toString().getBytes(StandardCharsets.UTF_8));
                })
                .build());
    }

    @AfterEach
    void stop() {
        client.shutdownNow();
        server.close();
    }

    private HttpResponse<String> post(String type, byte[] body) throws IOException, InterruptedException {
        return client.send(
                HttpRequest.newBuilder(URI.create(server.url() + "/form"))
                        .header("Content-Type", type)
                        .POST(HttpRequest.BodyPublishers.ofByteArray(body))
                        .build(),
                HttpResponse.BodyHandlers.ofString());
    }

    private static String hash(byte[] bytes) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes), 0, 4);
    }

    @Test
    void parts_come_with_their_names_and_bytes_whatever_is_in_them() throws Exception {
        byte[] big = new byte[900_000];
        new Random(3).nextBytes(big);
        byte[] tricky = "a\r\n--b\r\n-\r\n--".getBytes(StandardCharsets.US_ASCII);
        var body = new java.io.ByteArrayOutputStream();
        body.writeBytes(
                "--bound\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a b/\\\"ö\\\\.txt\"\r\nContent-Type: x/y\r\n\r\n"
                        .getBytes(StandardCharsets.UTF_8));
        body.writeBytes(big);
        body.writeBytes(
                "\r\n--bound\r\nContent-Disposition: form-data; name=skip\r\n\r\nnobody reads\r\n--bound\r\ncontent-disposition: form-data; name=\"t\"\r\n\r\n"
                        .getBytes(StandardCharsets.UTF_8));
        body.writeBytes(tricky);
        body.writeBytes(
                "\r\n--bound\r\nContent-Disposition: form-data; name=\"e\"; filename=\"\"\r\n\r\n\r\n--bound--\r\n"
                        .getBytes(StandardCharsets.UTF_8));
        HttpResponse<String> response = post("multipart/form-data; boundary=bound", body.toByteArray());
        assertThat(response.statusCode()).isEqualTo(200);
        assertThat(response.body())
                .isEqualTo("file|/a b/\"ö\\.txt|900000|%s\nskip|-|0|%s\nt|-|%d|%s\ne||0|%s\n"
                        .formatted(hash(big), hash(new byte[0]), tricky.length, hash(tricky), hash(new byte[0])));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "--b\r\nContent-Disposition: form-data; name=x\r\n\r\nhalf", "nothing of the kind"})
    void what_is_cut_or_no_multipart_is_a_bad_request(String body) throws Exception {
        assertThat(post("multipart/form-data; boundary=b", body.getBytes(StandardCharsets.US_ASCII))
                        .statusCode())
                .isEqualTo(400);
        assertThat(post("multipart/form-data", body.getBytes(StandardCharsets.US_ASCII))
                        .statusCode())
                .isEqualTo(400);
        assertThat(post("text/plain", body.getBytes(StandardCharsets.US_ASCII)).statusCode())
                .isEqualTo(400);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '#',
            quoteCharacter = '\0',
            value = {
                "form-data; name=a # name # a",
                "form-data; filename=\"x;name=y\"; name=\"b\" # name # b",
                "form-data; NAME = \"c\" # name # c",
                "form-data; filename=\"C:\\dir\\f\" # filename # C:\\dir\\f",
            })
    void parameters(String header, String name, String value) {
        assertThat(MultipartReader.parameter(header, name)).contains(value);
    }
}
