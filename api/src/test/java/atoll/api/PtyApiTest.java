package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.testing.CoreFixture;
import atoll.http.Json;
import java.net.URI;
import java.net.URLEncoder;
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

class PtyApiTest {
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

    /** A viewer: commands apart from output. */
    private static final class Viewer implements WebSocket.Listener {
        final BlockingQueue<String> texts = new LinkedBlockingQueue<>();
        final StringBuilder output = new StringBuilder();
        final CompletableFuture<String> closed = new CompletableFuture<>();

        @Override
        public CompletionStage<?> onText(WebSocket socket, CharSequence data, boolean last) {
            texts.add(data.toString());
            socket.request(1);
            return CompletableFuture.completedStage(null);
        }

        @Override
        public CompletionStage<?> onBinary(WebSocket socket, ByteBuffer data, boolean last) {
            synchronized (output) {
                output.append(StandardCharsets.UTF_8.decode(data));
                output.notifyAll();
            }
            socket.request(1);
            return CompletableFuture.completedStage(null);
        }

        @Override
        public CompletionStage<?> onClose(WebSocket socket, int code, String reason) {
            closed.complete(code + " " + reason);
            return CompletableFuture.completedStage(null);
        }

        JsonNode text() throws InterruptedException {
            String text = texts.poll(30, TimeUnit.SECONDS);
            return Json.mapper().readTree(text == null ? "{\"type\":\"nothing came\"}" : text);
        }

        void awaitOutput(String wanted) throws InterruptedException {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            synchronized (output) {
                while (output.indexOf(wanted) < 0 && System.nanoTime() < end) {
                    output.wait(1000);
                }
                assertThat(output.toString()).contains(wanted);
            }
        }
    }

    private CompletableFuture<WebSocket> connect(String query, Viewer viewer) {
        URI uri = URI.create("ws://127.0.0.1:" + server.api.port() + sandbox + "/pty" + query);
        return client.newWebSocketBuilder()
                .header("Authorization", "Bearer " + CoreFixture.KEY)
                .buildAsync(uri, viewer);
    }

    private static String command(String lines) {
        return "?command=" + URLEncoder.encode(lines, StandardCharsets.UTF_8);
    }

    private WebSocket open(String query, Viewer viewer) throws Exception {
        return connect(query, viewer).get(30, TimeUnit.SECONDS);
    }

    private static void type(WebSocket socket, String text) {
        socket.sendBinary(ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)), true)
                .join();
    }

    @Test
    void a_terminal_says_that_it_has_started_then_what_it_prints_and_how_it_ended() throws Exception {
        var viewer = new Viewer();
        open(command("print hello\nexit 3"), viewer);
        JsonNode started = viewer.text();
        assertThat(started.get("type").stringValue()).isEqualTo("started");
        assertThat(started.get("process_id").stringValue()).startsWith("proc-");
        assertThat(started.get("pid").intValue()).isPositive();
        assertThat(started.get("offset").longValue()).isZero();
        JsonNode exited = viewer.text();
        assertThat(exited.get("type").stringValue()).isEqualTo("exited");
        assertThat(exited.get("exit_code").intValue()).isEqualTo(3);
        assertThat(exited.get("process_id")).isEqualTo(started.get("process_id"));
        viewer.awaitOutput("hello\n");
        assertThat(viewer.closed.get(30, TimeUnit.SECONDS)).startsWith("1000");
    }

    @Test
    void what_is_typed_reaches_the_program() throws Exception {
        var viewer = new Viewer();
        WebSocket socket = open(command("cat"), viewer);
        type(socket, "typed ü\n");
        viewer.awaitOutput("typed ü");
        socket.abort();
    }

    @Test
    void the_size_is_set_at_the_start_and_changed_later() throws Exception {
        var viewer = new Viewer();
        WebSocket socket = open(command("cat") + "&cols=101&rows=33", viewer);
        String process =
                sandbox + "/processes/" + viewer.text().get("process_id").stringValue();
        assertThat(server.get(200, process).at("/pty/cols").intValue()).isEqualTo(101);
        socket.sendText("{\"type\":\"resize\",\"cols\":40,\"rows\":10}", true).join();
        atoll.core.testing.Eventually.until(() -> columns(process) == 40, () -> columns(process));
        socket.abort();
    }

    private int columns(String process) {
        try {
            return server.get(200, process).at("/pty/cols").intValue();
        } catch (java.io.IOException | InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void a_signal_ends_the_program() throws Exception {
        var viewer = new Viewer();
        WebSocket socket = open(command("wait never"), viewer);
        assertThat(viewer.text().get("type").stringValue()).isEqualTo("started");
        socket.sendText("{\"type\":\"signal\",\"signal\":\"KILL\"}", true).join();
        JsonNode exited = viewer.text();
        assertThat(exited.get("exit_reason").stringValue()).isEqualTo("signaled");
        assertThat(exited.get("signal").intValue()).isEqualTo(9);
    }

    @Test
    void a_closed_socket_ends_nothing_and_a_viewer_that_comes_back_misses_no_byte() throws Exception {
        var first = new Viewer();
        WebSocket socket = open(command("print one\nwait gate\nprint two"), first);
        String id = first.text().get("process_id").stringValue();
        first.awaitOutput("one\n");
        socket.abort();
        var whole = new Viewer();
        var rest = new Viewer();
        open("?process_id=" + id, whole);
        open("?process_id=" + id + "&offset=2", rest);
        assertThat(rest.text().get("offset").longValue()).isEqualTo(2);
        server.core.node.open("gate");
        whole.awaitOutput("two\n");
        rest.awaitOutput("two\n");
        assertThat(whole.closed.get(30, TimeUnit.SECONDS)).startsWith("1000");
        assertThat(rest.closed.get(30, TimeUnit.SECONDS)).startsWith("1000");
        assertThat(whole.output.toString()).isEqualTo("one\ntwo\n");
        assertThat(rest.output.toString()).isEqualTo("e\ntwo\n");
    }

    @Test
    void the_server_may_lose_the_node_for_a_while_and_the_viewer_notices_nothing() throws Exception {
        var viewer = new Viewer();
        open(command("print one\nwait gate\nprint two"), viewer);
        viewer.awaitOutput("one\n");
        server.core.node.goAway();
        server.core.node.comeBack();
        server.core.node.open("gate");
        assertThat(viewer.closed.get(30, TimeUnit.SECONDS)).startsWith("1000");
        assertThat(viewer.output.toString()).isEqualTo("one\ntwo\n");
    }

    @Test
    void an_ended_terminal_is_replayed() throws Exception {
        var first = new Viewer();
        open(command("print all of it"), first);
        String id = first.text().get("process_id").stringValue();
        assertThat(first.closed.get(30, TimeUnit.SECONDS)).startsWith("1000");
        var later = new Viewer();
        open("?process_id=" + id, later);
        assertThat(later.text().get("type").stringValue()).isEqualTo("started");
        assertThat(later.text().get("type").stringValue()).isEqualTo("exited");
        later.awaitOutput("all of it\n");
    }

    @Test
    void commands_that_are_not_known_close_the_viewer_and_not_the_terminal() throws Exception {
        for (String text : new String[] {"{\"type\":\"bell\"}", "{\"type\":\"resize\",\"cols\":0,\"rows\":1}", "x"}) {
            var viewer = new Viewer();
            WebSocket socket = open(command("cat"), viewer);
            String process =
                    sandbox + "/processes/" + viewer.text().get("process_id").stringValue();
            socket.sendText(text, true).join();
            assertThat(viewer.closed.get(30, TimeUnit.SECONDS)).startsWith("4400 invalid_request: ");
            assertThat(server.get(200, process).get("state").stringValue()).isEqualTo("running");
        }
    }

    @Test
    void what_is_wrong_with_a_terminal_is_an_ordinary_answer() {
        assertRefused("?process_id=nonsense", 404);
        assertRefused("?cols=0", 400);
        assertRefused(command(" "), 400);
        assertRefused("?user=nobody-knows", 400);
    }

    private void assertRefused(String query, int status) {
        assertThatThrownBy(() -> connect(query, new Viewer()).join())
                .cause()
                .isInstanceOfSatisfying(
                        WebSocketHandshakeException.class,
                        e -> assertThat(e.getResponse().statusCode()).isEqualTo(status));
    }
}
