package atoll.api;

import atoll.core.Atoll;
import atoll.http.HttpServer;
import atoll.http.HttpServerConfig;
import atoll.http.Json;
import atoll.http.RouteTable;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import tools.jackson.databind.JsonNode;

/** The real API on a free port, over a fake core. */
final class ApiServer implements AutoCloseable {
    static final HttpServerConfig CONFIG = HttpServerConfig.defaults()
            .listeningOn("127.0.0.1", 0)
            .withTimeouts(Duration.ofSeconds(5), Duration.ofSeconds(5), Duration.ofMillis(700), Duration.ofSeconds(10));

    final FakeAtoll atoll;
    final PrometheusMetrics metrics = new PrometheusMetrics();
    final RouteTable routes;
    private final HttpServer server;
    private final HttpClient client = HttpClient.newHttpClient();

    private final String key;

    ApiServer() throws IOException {
        this(new FakeAtoll());
    }

    private ApiServer(FakeAtoll fake) throws IOException {
        this(fake, fake, FakeAtoll.KEY);
    }

    /** Over any core, with a key that opens it; {@link #atoll} is of no use then. */
    ApiServer(Atoll core, String key) throws IOException {
        this(core, new FakeAtoll(), key);
    }

    private ApiServer(Atoll core, FakeAtoll fake, String key) throws IOException {
        this.atoll = fake;
        this.key = key;
        RouteTable.Builder builder = RouteTable.builder();
        NativeApi.addTo(builder, core, metrics, "test", List.of("https://agent.example"));
        routes = builder.build();
        server = new HttpServer(CONFIG, routes, NativeApi.errors(), metrics, Optional.empty());
        server.start(HttpServer.bind(CONFIG));
    }

    record Event(String name, JsonNode data) {}

    int port() {
        return server.port();
    }

    URI uri(String path) {
        return URI.create("http://127.0.0.1:" + server.port() + path);
    }

    HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(uri(path))
                .header("Authorization", "Bearer " + key)
                .timeout(Duration.ofSeconds(30));
    }

    HttpResponse<String> send(HttpRequest.Builder request) throws IOException, InterruptedException {
        return client.send(request.build(), BodyHandlers.ofString());
    }

    HttpResponse<InputStream> open(HttpRequest.Builder request) throws IOException, InterruptedException {
        return client.send(request.build(), BodyHandlers.ofInputStream());
    }

    HttpResponse<String> get(String path) throws IOException, InterruptedException {
        return send(request(path));
    }

    HttpResponse<String> post(String path, String body) throws IOException, InterruptedException {
        return send(request(path).POST(BodyPublishers.ofString(body)));
    }

    JsonNode exec(Map<String, ?> fields) throws IOException, InterruptedException {
        HttpResponse<String> response = post("/v1/code_exec", Json.text(fields));
        if (response.statusCode() != 200) {
            throw new AssertionError(response.statusCode() + " " + response.body());
        }
        return Json.mapper().readTree(response.body());
    }

    List<Event> stream(String code) throws IOException, InterruptedException {
        return events(post("/v1/code_exec", Json.text(Map.of("code", code, "stream", true)))
                .body());
    }

    static List<Event> events(String body) {
        var events = new ArrayList<Event>();
        for (String block : body.split("\n\n", -1)) {
            if (block.isEmpty() || block.startsWith(":")) {
                continue;
            }
            String[] lines = block.split("\n", -1);
            events.add(new Event(
                    lines[0].substring("event: ".length()),
                    Json.mapper().readTree(lines[1].substring("data: ".length()))));
        }
        return events;
    }

    static JsonNode json(HttpResponse<String> response) {
        return Json.mapper().readTree(response.body());
    }

    @Override
    public void close() {
        client.shutdownNow();
        server.close();
    }
}
