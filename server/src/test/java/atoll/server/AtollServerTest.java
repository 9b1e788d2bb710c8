package atoll.server;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The whole server with its real store, and an engine that is not there. */
class AtollServerTest {
    @TempDir
    Path data;

    private final HttpClient client = HttpClient.newHttpClient();

    @Test
    void without_its_engine_it_starts_and_says_so() throws Exception {
        try (AtollServer server = AtollServer.start(options(data, 0))) {
            HttpResponse<String> health = get(server, "/healthz", "");
            assertThat(health.statusCode()).isEqualTo(503);
            assertThat(health.body()).contains("engine");
        }
    }

    @Test
    void the_key_it_writes_at_first_start_opens_it_and_stays() throws Exception {
        Path file = data.resolve("secret/api-key");
        String key;
        try (AtollServer server = AtollServer.start(options(data, 0))) {
            key = Files.readString(file).strip();
            assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(file)))
                    .isEqualTo("rw-------");
            assertThat(get(server, "/v1/sandboxes", key).statusCode()).isEqualTo(200);
            assertThat(get(server, "/v1/sandboxes", key + "x").statusCode()).isEqualTo(401);
        }
        try (AtollServer server = AtollServer.start(options(data, 0))) {
            assertThat(Files.readString(file).strip()).isEqualTo(key);
            assertThat(get(server, "/v1/sandboxes", key).statusCode()).isEqualTo(200);
        }
    }

    @Test
    void a_second_server_on_the_same_folder_is_refused_in_one_line() throws Exception {
        try (AtollServer first = AtollServer.start(options(data, 0))) {
            assertThat(first.port()).isPositive();
            assertThatThrownBy(() -> AtollServer.start(options(data, 0)))
                    .isInstanceOf(AtollServer.StartFailedException.class)
                    .hasMessageContaining("another server runs on");
        }
    }

    @Test
    void a_port_that_is_taken_is_said_in_one_line_and_leaves_the_folder_free(@TempDir Path other) throws Exception {
        try (AtollServer first = AtollServer.start(options(data, 0))) {
            ServerOptions same = options(other, first.port());
            assertThatThrownBy(() -> AtollServer.start(same))
                    .isInstanceOf(AtollServer.StartFailedException.class)
                    .hasMessageContaining("--port");
        }
        try (AtollServer second = AtollServer.start(options(other, 0))) {
            assertThat(second.port()).isPositive();
        }
    }

    @Test
    void a_setting_that_is_not_known_is_said_in_one_line() throws IOException {
        ServerOptions options =
                ServerOptions.read(List.of("--data", data.toString(), "--port", "0", "--pool.deepness", "3"), Map.of());
        assertThatThrownBy(() -> AtollServer.start(options))
                .isInstanceOf(AtollServer.StartFailedException.class)
                .hasMessageContaining("pool.deepness");
    }

    private static ServerOptions options(Path data, int port) throws IOException {
        return ServerOptions.read(List.of("--data", data.toString(), "--port", Integer.toString(port)), Map.of());
    }

    private HttpResponse<String> get(AtollServer server, String path, String key) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + server.port() + path))
                .header("X-API-Key", key.isEmpty() ? "none" : key)
                .build();
        return client.send(request, BodyHandlers.ofString());
    }
}
