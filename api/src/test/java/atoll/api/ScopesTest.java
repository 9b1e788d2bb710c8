package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.Scope;
import atoll.http.Json;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import tools.jackson.databind.JsonNode;

/** What a key may not do it is told before a byte of the body is read, and nothing changes: each operation of openapi.json. */
class ScopesTest {
    private InsideServer server;
    private List<Operation> operations;
    private Map<String, String> names;

    private record Operation(String method, String path, String scope) {
        static Stream<Operation> of(Map.Entry<String, JsonNode> path) {
            return path.getValue().properties().stream()
                    .filter(one -> !one.getValue().path("security").isArray())
                    .map(one -> new Operation(
                            one.getKey().toUpperCase(Locale.ROOT),
                            path.getKey(),
                            one.getValue().path("x-scope").asString("none")));
        }
    }

    @BeforeEach
    void start() throws Exception {
        server = new InsideServer();
        JsonNode ran = server.post(200, "/v1/code_exec", Map.of("code", "print 1", "language", "python"));
        String sandbox = "/v1/sandboxes/" + ran.get("sandbox_id").stringValue();
        JsonNode snapshot = server.post(201, sandbox + "/snapshots", Map.of("kind", "files"));
        names = Map.of(
                "{sandbox_id}", ran.get("sandbox_id").stringValue(),
                "{execution_id}", ran.get("execution_id").stringValue(),
                "{context_id}", ran.get("context_id").stringValue(),
                "{snapshot_id}", snapshot.get("snapshot_id").stringValue(),
                "{template_id}", "python",
                "{port}", "8000",
                "{pid}", "1",
                "{key_id}", server.core.caller().key().toString());
        operations = server.get(200, "/openapi.json").get("paths").properties().stream()
                .flatMap(Operation::of)
                .toList();
    }

    @AfterEach
    void stop() {
        server.close();
    }

    private String key(Scope... scopes) throws IOException, InterruptedException {
        List<String> words = Stream.of(scopes)
                .map(scope -> scope.name().toLowerCase(Locale.ROOT))
                .toList();
        return server.post(201, "/v1/keys", Map.of("name", String.join("-", words), "scopes", words))
                .get("key")
                .stringValue();
    }

    /** The status of a request whose body is announced, and never comes: a large one, since a small one is awaited for a moment before any answer. */
    private int status(Operation operation, String key) throws IOException {
        String path = operation.path();
        for (Map.Entry<String, String> name : names.entrySet()) {
            path = path.replace(name.getKey(), name.getValue());
        }
        path = path.replaceAll("\\{[a-z_]+\\}", "none");
        boolean body = !operation.method().equals("GET");
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), server.api.port())) {
            socket.setSoTimeout(60_000);
            socket.getOutputStream()
                    .write((operation.method() + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
                                    + key + "\r\n"
                                    + (body ? "Content-Type: application/json\r\nContent-Length: 500000\r\n" : "")
                                    + "\r\n")
                            .getBytes(StandardCharsets.US_ASCII));
            var in = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII));
            String line = in.readLine();
            assertThat(line).as(operation.method() + " " + path).startsWith("HTTP/1.1 ");
            return Integer.parseInt(line.substring(9, 12));
        }
    }

    /** All that a key can see, but for when keys were used. */
    private List<String> everything() throws IOException, InterruptedException {
        var all = new ArrayList<String>();
        for (String path : List.of(
                "/v1/sandboxes",
                "/v1/executions",
                "/v1/snapshots",
                "/v1/templates",
                "/v1/sandboxes/" + names.get("{sandbox_id}") + "/contexts",
                "/v1/sandboxes/" + names.get("{sandbox_id}") + "/processes")) {
            all.add(Json.text(server.get(200, path)).replaceAll("\"last_active_at\":\"[^\"]*\"", ""));
        }
        server.get(200, "/v1/keys")
                .get("items")
                .forEach(key -> all.add(key.get("key_id").stringValue() + key.get("scopes")));
        return all;
    }

    @Test
    void every_operation_says_which_scope_it_needs() {
        assertThat(operations)
                .isNotEmpty()
                .allMatch(one -> List.of("read", "execute", "admin").contains(one.scope()));
        assertThat(operations)
                .filteredOn(one -> one.scope().equals("read") && !one.method().equals("GET"))
                .extracting(Operation::path)
                .containsExactly("/v1/sandboxes/{sandbox_id}/processes/{process}:wait");
    }

    @ParameterizedTest
    @EnumSource(Scope.class)
    void a_key_of_one_scope_is_refused_what_needs_another_before_the_body_comes_and_nothing_changes(Scope scope)
            throws Exception {
        String key = key(scope);
        List<String> before = everything();
        for (Operation operation : operations) {
            if (!operation.scope().equals(scope.name().toLowerCase(Locale.ROOT))) {
                assertThat(status(operation, key)).as(operation.toString()).isEqualTo(403);
            }
        }
        assertThat(everything()).isEqualTo(before);
    }

    @Test
    void a_key_is_let_through_to_what_its_scopes_allow() throws Exception {
        Map<String, String> keys = Map.of(
                "read", key(Scope.READ),
                "execute", key(Scope.READ, Scope.EXECUTE),
                "admin", key(Scope.READ, Scope.ADMIN));
        for (Operation operation : operations) {
            if (operation.method().equals("GET")) {
                assertThat(status(operation, keys.getOrDefault(operation.scope(), "")))
                        .as(operation.toString())
                        .isNotIn(401, 403);
            }
        }
        assertThat(server.api
                        .send(server.api
                                .request("/v1/code_exec")
                                .setHeader("Authorization", "Bearer " + keys.get("execute"))
                                .POST(java.net.http.HttpRequest.BodyPublishers.ofString("{\"code\":\"print 1\"}")))
                        .statusCode())
                .isEqualTo(200);
    }
}
