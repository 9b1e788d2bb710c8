package atoll.compat.e2b;

import atoll.core.testing.CoreFixture;
import atoll.http.HttpServer;
import atoll.http.HttpServerConfig;
import atoll.http.Json;
import atoll.http.RequestObserver;
import atoll.http.RouteTable;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import tools.jackson.databind.JsonNode;

/** Core on a node in memory, behind this adapter on a real port, and a client that says what the SDKs say. */
final class E2bFixture implements AutoCloseable {
    static final String DOMAIN = "sandboxes.example";
    static final byte[] NOTHING = new byte[0];

    final CoreFixture core;
    private final HttpServer server;
    private final HttpClient client =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    E2bFixture() throws IOException {
        this(Map.of());
    }

    /** With settings of core. */
    E2bFixture(Map<String, String> settings) throws IOException {
        core = new CoreFixture(settings).ready();
        RouteTable.Builder routes = RouteTable.builder();
        E2bApi.addTo(routes, core.core(), new E2bSettings(DOMAIN, Map.of()));
        HttpServerConfig config = HttpServerConfig.defaults().listeningOn("127.0.0.1", 0);
        server = new HttpServer(config, routes.build(), e -> Optional.empty(), RequestObserver.NONE, Optional.empty());
        server.start(HttpServer.bind(config));
    }

    @Override
    public void close() {
        client.shutdownNow();
        server.close();
        core.close();
    }

    /** An answer, read to its end. */
    record Answer(int status, String text, HttpResponse<byte[]> response) {
        JsonNode json() {
            byte[] body = response.body();
            return Json.parse(body, body.length);
        }

        String header(String name) {
            return response.headers().firstValue(name).orElse("");
        }

        /** The messages of a Connect stream, the last one being how it ended. */
        List<JsonNode> messages() {
            var messages = new ArrayList<JsonNode>();
            ByteBuffer rest = ByteBuffer.wrap(response.body());
            while (rest.hasRemaining()) {
                byte flags = rest.get();
                assert flags == 0 || flags == 2;
                byte[] text = new byte[rest.getInt()];
                rest.get(text);
                messages.add(Json.parse(text, text.length));
            }
            return messages;
        }

        /** The lines of a code server's answer. */
        List<JsonNode> lines() {
            return text.lines()
                    .map(line -> {
                        byte[] bytes = line.getBytes(StandardCharsets.UTF_8);
                        return Json.parse(bytes, bytes.length);
                    })
                    .toList();
        }
    }

    Answer send(String method, String path, Map<String, String> headers, byte[] body)
            throws IOException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(
                        URI.create("http://127.0.0.1:" + server.port() + E2bApi.PREFIX + path))
                .timeout(Duration.ofSeconds(60))
                .method(
                        method,
                        body.length == 0
                                ? HttpRequest.BodyPublishers.noBody()
                                : HttpRequest.BodyPublishers.ofByteArray(body));
        headers.forEach(request::header);
        HttpResponse<byte[]> response = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
        return new Answer(response.statusCode(), new String(response.body(), StandardCharsets.UTF_8), response);
    }

    /** An answer that is read while it comes. The caller closes its body. */
    HttpResponse<InputStream> open(String path, Map<String, String> headers, byte[] body)
            throws IOException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(
                        URI.create("http://127.0.0.1:" + server.port() + E2bApi.PREFIX + path))
                .POST(HttpRequest.BodyPublishers.ofByteArray(body));
        headers.forEach(request::header);
        return client.send(request.build(), HttpResponse.BodyHandlers.ofInputStream());
    }

    /** What is asked of the server's root. */
    Answer root(String path) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + server.port() + path))
                .timeout(Duration.ofSeconds(60))
                .build();
        HttpResponse<byte[]> response = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
        return new Answer(response.statusCode(), new String(response.body(), StandardCharsets.UTF_8), response);
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** The control plane. */
    Answer api(String method, String path, String json) throws IOException, InterruptedException {
        return send(method, path, Map.of("X-API-KEY", CoreFixture.KEY), utf8(json));
    }

    /** As JavaScript sends a body: in chunks, of a length that nobody says before. */
    Answer chunked(String method, String path, Map<String, String> headers, byte[] body)
            throws IOException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(
                        URI.create("http://127.0.0.1:" + server.port() + E2bApi.PREFIX + path))
                .timeout(Duration.ofSeconds(60))
                .method(
                        method,
                        HttpRequest.BodyPublishers.fromPublisher(HttpRequest.BodyPublishers.ofByteArrays(
                                List.of(new byte[] {body[0]}, Arrays.copyOfRange(body, 1, body.length)))));
        headers.forEach(request::header);
        HttpResponse<byte[]> response = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
        return new Answer(response.statusCode(), new String(response.body(), StandardCharsets.UTF_8), response);
    }

    /** A sandbox, as the SDKs hold it. */
    final class Box {
        final String id;
        final String token;
        final JsonNode view;

        Box(JsonNode view) {
            this.view = view;
            this.id = view.get("sandboxID").stringValue();
            this.token = view.get("envdAccessToken").stringValue();
        }

        Map<String, String> headers(int port) {
            var headers = new HashMap<String, String>();
            headers.put("E2b-Sandbox-Id", id);
            headers.put("E2b-Sandbox-Port", Integer.toString(port));
            headers.put("X-Access-Token", token);
            return headers;
        }

        Map<String, String> envd() {
            return headers(49_983);
        }

        Answer get(String path) throws IOException, InterruptedException {
            return send("GET", path, envd(), NOTHING);
        }

        Answer rpc(String method, String json) throws IOException, InterruptedException {
            return send("POST", "/" + method, envd(), utf8(json));
        }

        Answer stream(String method, String... messages) throws IOException, InterruptedException {
            return send("POST", "/" + method, envd(), framed(messages));
        }

        /** What a program of one command a line says, and how it ends. */
        Answer run(String script) throws IOException, InterruptedException {
            return stream(
                    "process.Process/Start",
                    Json.text(Map.of("process", Map.of("cmd", "bash", "args", List.of("-c", script)), "stdin", false)));
        }

        Answer code(String json) throws IOException, InterruptedException {
            return send("POST", "/execute", headers(49_999), utf8(json));
        }
    }

    static byte[] framed(String... messages) {
        var body = new ByteArrayOutputStream();
        for (String message : messages) {
            byte[] text = utf8(message);
            body.writeBytes(
                    ByteBuffer.allocate(5).put((byte) 0).putInt(text.length).array());
            body.writeBytes(text);
        }
        return body.toByteArray();
    }

    Box create(String more) throws IOException, InterruptedException {
        Answer made = api("POST", "/v2/sandboxes", "{\"templateID\":\"base\"" + more + "}");
        if (made.status() != 201) {
            throw new AssertionError(made.status() + " " + made.text());
        }
        return new Box(made.json());
    }

    static String base64(String text) {
        return Base64.getEncoder().encodeToString(utf8(text));
    }
}
