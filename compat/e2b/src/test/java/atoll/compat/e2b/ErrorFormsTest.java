package atoll.compat.e2b;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.http.HttpServer;
import atoll.http.HttpServerConfig;
import atoll.http.Json;
import atoll.http.RequestObserver;
import atoll.http.RouteTable;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import tools.jackson.databind.JsonNode;

/** Each of core's errors in the form that the SDKs make their exceptions of. */
class ErrorFormsTest {
    /** Those by which the SDKs choose an exception, or leave an answer to the caller. */
    private static final Set<Integer> STATUSES = Set.of(400, 401, 403, 404, 409, 413, 429, 500, 502, 503, 507);

    private static final Set<String> CODES = Set.of(
            "invalid_argument",
            "unauthenticated",
            "permission_denied",
            "not_found",
            "already_exists",
            "failed_precondition",
            "resource_exhausted",
            "unavailable",
            "unimplemented",
            "internal");

    private final HttpClient client =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private HttpServer server;

    @BeforeEach
    void start() throws IOException {
        RouteTable.Builder routes = RouteTable.builder();
        routes.get("/api/{code}", ApiErrors.answering(exchange -> {
            throw failure(exchange.path("code"));
        }));
        routes.post("/api/{code}", ApiErrors.answering(exchange -> {
            throw failure(exchange.path("code"));
        }));
        routes.post(
                "/unary/{code}",
                exchange -> Connect.unary(exchange, _ -> {
                    throw failure(exchange.path("code"));
                }));
        routes.post(
                "/stream/{code}",
                exchange -> Connect.streaming(exchange, (_, _) -> {
                    throw failure(exchange.path("code"));
                }));
        HttpServerConfig config = HttpServerConfig.defaults().listeningOn("127.0.0.1", 0);
        server = new HttpServer(config, routes.build(), e -> Optional.empty(), RequestObserver.NONE, Optional.empty());
        server.start(HttpServer.bind(config));
    }

    @AfterEach
    void stop() {
        client.shutdownNow();
        server.close();
    }

    private static AtollException failure(String code) {
        return new AtollException(ErrorCode.valueOf(code), "it failed", "a cause", "do something");
    }

    private HttpResponse<byte[]> call(String method, String path) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + server.port() + path))
                .method(method, HttpRequest.BodyPublishers.ofString("{}"))
                .build();
        return client.send(request, HttpResponse.BodyHandlers.ofByteArray());
    }

    private static JsonNode json(byte[] body) {
        return Json.parse(body, body.length);
    }

    @ParameterizedTest
    @EnumSource(ErrorCode.class)
    void an_error_of_the_api_has_its_status_in_the_body_and_says_whether_to_repeat(ErrorCode code) throws Exception {
        for (String method : new String[] {"GET", "POST"}) {
            HttpResponse<byte[]> answer = call(method, "/api/" + code);
            assertThat(STATUSES).contains(answer.statusCode());
            JsonNode body = json(answer.body());
            assertThat(body.get("code").intValue()).isEqualTo(answer.statusCode());
            assertThat(body.get("message").stringValue()).contains("it failed").contains("do something");
            boolean pythonRepeats = answer.statusCode() == 429 || answer.statusCode() > 500;
            assertThat(answer.headers().firstValue("Should-Retry"))
                    .isEqualTo(pythonRepeats ? Optional.of(method.equals("GET") ? "true" : "false") : Optional.empty());
            assertThat(answer.headers().firstValue("Retry-After").isPresent()).isEqualTo(answer.statusCode() == 429);
        }
    }

    @ParameterizedTest
    @EnumSource(ErrorCode.class)
    void an_error_of_an_rpc_has_a_code_of_connect(ErrorCode code) throws Exception {
        HttpResponse<byte[]> unary = call("POST", "/unary/" + code);
        assertThat(unary.statusCode()).isGreaterThanOrEqualTo(400);
        String name = json(unary.body()).get("code").stringValue();
        assertThat(CODES).contains(name);
        HttpResponse<byte[]> stream = call("POST", "/stream/" + code);
        assertThat(stream.statusCode()).isEqualTo(200);
        ByteBuffer message = ByteBuffer.wrap(stream.body());
        assertThat(message.get()).isEqualTo((byte) 2);
        byte[] text = new byte[message.getInt()];
        message.get(text);
        assertThat(message.hasRemaining()).isFalse();
        assertThat(json(text).at("/error/code").stringValue()).isEqualTo(name);
    }
}
