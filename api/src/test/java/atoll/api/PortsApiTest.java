package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.BoxId;
import atoll.core.SandboxId;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import atoll.core.testing.FakePorts;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.WebSocket;
import java.net.http.WebSocketHandshakeException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

class PortsApiTest {
    private final HttpClient client = HttpClient.newHttpClient();
    private InsideServer server;
    private String sandbox;

    @BeforeEach
    void start() throws Exception {
        server = new InsideServer();
        sandbox = server.sandbox();
    }

    @AfterEach
    void stop() {
        client.shutdownNow();
        server.close();
    }

    private FakePorts inside() {
        SandboxId id = SandboxId.parse(sandbox.substring(sandbox.lastIndexOf('/') + 1));
        BoxId box = server.core.core().sandboxes().get(server.core.caller(), id).box();
        return server.core.node.portsOf(box);
    }

    /** Everything that comes, in order, as text. */
    private static final class Ears implements WebSocket.Listener {
        final BlockingQueue<String> heard = new LinkedBlockingQueue<>();

        @Override
        public CompletionStage<?> onText(WebSocket socket, CharSequence data, boolean last) {
            heard.add("text " + data);
            socket.request(1);
            return CompletableFuture.completedStage(null);
        }

        @Override
        public CompletionStage<?> onBinary(WebSocket socket, ByteBuffer data, boolean last) {
            heard.add("binary " + StandardCharsets.UTF_8.decode(data));
            socket.request(1);
            return CompletableFuture.completedStage(null);
        }

        @Override
        public CompletionStage<?> onClose(WebSocket socket, int code, String reason) {
            heard.add("close " + code + " " + reason);
            return CompletableFuture.completedStage(null);
        }

        String next() throws InterruptedException {
            return String.valueOf(heard.poll(30, TimeUnit.SECONDS));
        }
    }

    private CompletableFuture<WebSocket> connect(String port, Ears ears) {
        URI uri = URI.create("ws://127.0.0.1:" + server.api.port() + sandbox + "/ports/" + port + "/tunnel");
        return client.newWebSocketBuilder()
                .header("Authorization", "Bearer " + CoreFixture.KEY)
                .buildAsync(uri, ears);
    }

    @Test
    void ports_that_something_listens_on_are_listed() throws Exception {
        assertThat(server.get(200, sandbox + "/ports").get("items")).isEmpty();
        inside().listen(8080, "127.0.0.1");
        JsonNode port = server.get(200, sandbox + "/ports").at("/items/0");
        assertThat(port.get("port").intValue()).isEqualTo(8080);
        assertThat(port.get("address").stringValue()).isEqualTo("127.0.0.1");
        assertThat(port.get("process_id").isNull()).isTrue();
    }

    @Test
    void a_tunnel_carries_bytes_and_keeps_half_close() throws Exception {
        inside().listen(8080, "127.0.0.1");
        var ears = new Ears();
        WebSocket socket = connect("8080", ears).get(30, TimeUnit.SECONDS);
        socket.sendBinary(ByteBuffer.wrap("hello".getBytes(StandardCharsets.UTF_8)), true)
                .join();
        assertThat(ears.next()).isEqualTo("binary hello");
        socket.sendText("{\"type\":\"end\"}", true).join();
        assertThat(ears.next()).isEqualTo("text {\"type\":\"end\"}");
        socket.sendClose(1000, "").join();
        Eventually.until(() -> inside().open() == 0, () -> inside().open());
    }

    @Test
    void a_socket_that_breaks_closes_the_connection_inside() throws Exception {
        inside().listen(8080, "127.0.0.1");
        WebSocket socket = connect("8080", new Ears()).get(30, TimeUnit.SECONDS);
        Eventually.until(() -> inside().open() == 1, () -> inside().open());
        socket.abort();
        Eventually.until(() -> inside().open() == 0, () -> inside().open());
    }

    @Test
    void a_command_that_is_not_known_closes_with_its_error() throws Exception {
        inside().listen(8080, "127.0.0.1");
        for (String text : new String[] {"{\"type\":\"flush\"}", "hello", "[1]", "{\"type\":7}"}) {
            var ears = new Ears();
            connect("8080", ears).get(30, TimeUnit.SECONDS).sendText(text, true).join();
            assertThat(ears.next()).startsWith("close 4400 invalid_request: ");
        }
    }

    @Test
    void where_nothing_listens_the_upgrade_is_refused() {
        for (String port : new String[] {"8081", "0", "65536", "http"}) {
            int status = port.equals("8081") ? 404 : 400;
            assertThatThrownBy(() -> connect(port, new Ears()).join())
                    .cause()
                    .isInstanceOfSatisfying(
                            WebSocketHandshakeException.class,
                            e -> assertThat(e.getResponse().statusCode()).isEqualTo(status));
        }
    }
}
