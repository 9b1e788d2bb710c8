package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.testing.Eventually;
import atoll.http.Json;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import tools.jackson.databind.JsonNode;

/** Processes, contexts and use by HTTP, over the real core and a node in memory; each answer fits openapi.json. */
class ProcessesApiTest {
    private InsideServer server;
    private OpenApiSchemas schemas;
    private String sandbox = "";

    @BeforeEach
    void start() throws Exception {
        server = new InsideServer();
        schemas = new OpenApiSchemas(server.get(200, "/openapi.json"));
        sandbox = server.sandbox();
    }

    @AfterEach
    void stop() {
        server.close();
    }

    private JsonNode run(String command) throws Exception {
        return server.post(201, sandbox + "/processes", Map.of("command", command));
    }

    private static String id(JsonNode process) {
        return process.get("process_id").stringValue();
    }

    private String path(JsonNode process) {
        return sandbox + "/processes/" + id(process);
    }

    private JsonNode end(JsonNode process) throws Exception {
        JsonNode ended = server.post(200, path(process) + ":wait", Map.of());
        assertThat(ended.get("state").stringValue()).isEqualTo("ended");
        return ended;
    }

    @Test
    void what_needs_no_field_needs_no_body() throws Exception {
        JsonNode process = run("print a");
        assertThat(server.api.post(path(process) + ":wait", "").statusCode()).isEqualTo(200);
        assertThat(server.api.post(sandbox + "/contexts", "").statusCode()).isEqualTo(201);
        assertThat(server.api.post("/v1/sandboxes", "").statusCode()).isEqualTo(201);
    }

    private record SseEvent(String id, String name, JsonNode data) {}

    private static List<SseEvent> events(String body) {
        var events = new ArrayList<SseEvent>();
        for (String block : body.split("\n\n", -1)) {
            String id = "";
            String name = "";
            String data = "";
            for (String line : block.split("\n", -1)) {
                if (line.startsWith("id: ")) {
                    id = line.substring(4);
                } else if (line.startsWith("event: ")) {
                    name = line.substring(7);
                } else if (line.startsWith("data: ")) {
                    data = line.substring(6);
                }
            }
            if (!name.isEmpty()) {
                events.add(new SseEvent(id, name, Json.mapper().readTree(data)));
            }
        }
        return events;
    }

    private static byte[] bytes(List<SseEvent> events, String stream) {
        var bytes = new ByteArrayOutputStream();
        for (SseEvent event : events) {
            if (event.name().equals(stream)) {
                assertThat(event.data().get("offset").longValue()).isEqualTo(bytes.size());
                bytes.writeBytes(
                        event.data().has("text")
                                ? event.data().get("text").stringValue().getBytes(StandardCharsets.UTF_8)
                                : Base64.getDecoder()
                                        .decode(event.data().get("base64").stringValue()));
            }
        }
        return bytes.toByteArray();
    }

    @Test
    void a_process_is_started_looked_at_and_waited_for() throws Exception {
        JsonNode started = run("print a\nwait gate\nexit 3");
        schemas.fits("Process", started);
        assertThat(started.get("state").stringValue()).isEqualTo("running");
        assertThat(started.get("exit_code").isNull()).isTrue();
        JsonNode now = server.post(200, path(started) + ":wait", Map.of("timeout_seconds", 0.05));
        assertThat(now.get("state").stringValue()).isEqualTo("running");
        server.core.node.open("gate");
        JsonNode ended = end(started);
        schemas.fits("Process", ended);
        assertThat(ended.get("exit_reason").stringValue()).isEqualTo("exited");
        assertThat(ended.get("exit_code").intValue()).isEqualTo(3);
        assertThat(server.get(200, path(started))).isEqualTo(ended);
        JsonNode list = server.get(200, sandbox + "/processes?state=ended");
        schemas.fits("ProcessList", list);
        assertThat(list.get("items").get(0)).isEqualTo(ended);
        assertThat(server.get(200, sandbox + "/processes?state=running").get("items"))
                .isEmpty();
    }

    @Test
    void a_wait_answers_with_all_that_was_printed() throws Exception {
        JsonNode result =
                server.post(200, sandbox + "/processes", Map.of("command", "print a\nerr b\nexit 2", "wait", true));
        schemas.fits("ProcessResult", result);
        assertThat(result.get("stdout").stringValue()).isEqualTo("a\n");
        assertThat(result.get("stderr").stringValue()).isEqualTo("b\n");
        assertThat(result.get("output").stringValue()).isEqualTo("a\nb");
        assertThat(result.get("truncated").booleanValue()).isFalse();
        assertThat(result.get("exit_code").intValue()).isEqualTo(2);
        JsonNode early =
                server.post(200, sandbox + "/processes", Map.of("command", "print a\nwait gate", "wait_seconds", 0.3));
        schemas.fits("ProcessResult", early);
        assertThat(early.get("state").stringValue()).isEqualTo("running");
        server.core.node.open("gate");
        end(early);
    }

    @Test
    void everything_that_can_be_said_of_a_program_reaches_it() throws Exception {
        JsonNode started = server.post(
                201,
                sandbox + "/processes",
                Map.of(
                        "argv",
                        List.of("fake", "env X"),
                        "cwd",
                        "/srv",
                        "env",
                        Map.of("X", "y"),
                        "user",
                        "root",
                        "stdin",
                        true,
                        "timeout_seconds",
                        9,
                        "pty",
                        Map.of("cols", 100, "rows", 30),
                        "labels",
                        Map.of("role", "test")));
        schemas.fits("Process", started);
        assertThat(started.get("pty").get("cols").intValue()).isEqualTo(100);
        assertThat(started.get("timeout_seconds").doubleValue()).isEqualTo(9);
        end(started);
        assertThat(server.api.get(path(started) + "/output").body()).isEqualTo("y\n");
        assertThat(server.get(200, sandbox + "/processes?label.role=test").get("items"))
                .hasSize(1);
        assertThat(server.get(200, sandbox + "/processes?label.role=other").get("items"))
                .isEmpty();
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{} | 400 | invalid_request",
                "{\"argv\":[\"a\"],\"command\":\"b\"} | 400 | invalid_request",
                "{\"argv\":[]} | 400 | invalid_request",
                "{\"argv\":\"a b\"} | 400 | invalid_request",
                "{\"argv\":[\"a\",1]} | 400 | invalid_request",
                "{\"command\":\"a\",\"pty\":{\"cols\":0}} | 400 | invalid_request",
                "{\"command\":\"a\",\"pty\":true} | 400 | invalid_request",
                "{\"command\":\"a\",\"timeout_seconds\":-1} | 400 | invalid_request",
                "{\"command\":\"a\",\"comand\":\"b\"} | 400 | invalid_request",
                "{\"command\":\"a\",\"user\":\"nobody-knows\"} | 400 | invalid_request",
                "{\"argv\":[\"missing\"]} | 400 | program_not_found",
                "{\"argv\":[\"forbidden\"]} | 403 | permission_denied",
            })
    void what_cannot_be_started_gets_a_clear_error(String body, int status, String code) throws Exception {
        JsonNode error = InsideServer.answer(status, server.api.post(sandbox + "/processes", body));
        schemas.fits("Error", error);
        assertThat(error.at("/error/code").stringValue()).isEqualTo(code);
        assertThat(error.at("/error/remediation").stringValue()).isNotEmpty();
    }

    @Test
    void unknown_processes_and_sandboxes_are_404() throws Exception {
        server.get(404, sandbox + "/processes/proc-0000000000g00r00000000000r");
        server.get(404, sandbox + "/processes/4711");
        server.get(404, sandbox + "/processes/nonsense");
        server.get(404, "/v1/sandboxes/sb-exec-0000000000g00r00000000000r/processes");
        JsonNode started = run("wait never");
        String other = server.sandbox();
        server.get(404, other + "/processes/" + id(started));
    }

    @Test
    void output_is_raw_and_begins_where_it_is_asked_for() throws Exception {
        JsonNode started = run("print hello\nerr no\nprint world");
        end(started);
        assertThat(server.api.get(path(started) + "/output?offset=3").body()).isEqualTo("lo\nworld\n");
        assertThat(server.api.get(path(started) + "/output?stream=stderr").body())
                .isEqualTo("no\n");
        HttpResponse<String> combined = server.api.get(path(started) + "/output?stream=combined&follow=true");
        assertThat(combined.body()).isEqualTo("hello\nno\nworld\n");
        server.get(400, path(started) + "/output?stream=both");
    }

    @Test
    void a_pid_names_a_process_while_it_runs() throws Exception {
        JsonNode started = run("wait never");
        String byPid = sandbox + "/processes/" + started.get("pid").intValue();
        assertThat(id(server.get(200, byPid))).isEqualTo(id(started));
        JsonNode killed = server.delete(200, byPid);
        schemas.fits("Process", killed);
        assertThat(killed.get("exit_code").intValue()).isEqualTo(137);
        server.get(404, byPid);
        assertThat(server.delete(200, path(started))).isEqualTo(killed);
    }

    @Test
    void signals_have_names_and_numbers() throws Exception {
        JsonNode one = run("wait never");
        schemas.fits("Process", server.post(200, path(one) + ":signal", Map.of("signal", "TERM")));
        assertThat(end(one).get("signal").intValue()).isEqualTo(15);
        JsonNode two = run("wait never");
        server.post(200, path(two) + ":signal", Map.of("signal", 2, "target", "process"));
        assertThat(end(two).get("exit_code").intValue()).isEqualTo(130);
        server.post(200, path(two) + ":signal", Map.of("signal", "SIGKILL"));
        server.post(400, path(two) + ":signal", Map.of("signal", "NOPE"));
        server.post(400, path(two) + ":signal", Map.of("signal", 0));
        server.post(400, path(two) + ":signal", Map.of());
        server.post(400, path(two) + ":signal", Map.of("signal", 9, "target", "all"));
    }

    @Test
    void a_terminal_gets_another_size() throws Exception {
        JsonNode started = server.post(201, sandbox + "/processes", Map.of("command", "wait never", "pty", Map.of()));
        assertThat(started.get("pty").get("cols").intValue()).isEqualTo(80);
        JsonNode resized = server.post(200, path(started) + ":resize", Map.of("cols", 132, "rows", 50));
        assertThat(resized.get("pty").get("rows").intValue()).isEqualTo(50);
        server.post(409, path(run("wait never")) + ":resize", Map.of("cols", 1, "rows", 1));
    }

    @Test
    void input_of_any_size_is_written_and_a_repeated_one_changes_nothing() throws Exception {
        JsonNode started = server.post(201, sandbox + "/processes", Map.of("command", "cat", "stdin", true));
        byte[] large = "0123456789abcdef".repeat(1 << 16).getBytes(StandardCharsets.US_ASCII);
        JsonNode first = write(path(started) + "/stdin", large);
        schemas.fits("ProcessInput", first);
        assertThat(first.get("offset").longValue()).isEqualTo(large.length);
        assertThat(first.get("complete").booleanValue()).isTrue();
        assertThat(write(path(started) + "/stdin?offset=0", large).get("offset").longValue())
                .isEqualTo(large.length);
        InsideServer.answer(
                409,
                server.api.send(server.api
                        .request(path(started) + "/stdin?offset=99999999")
                        .POST(BodyPublishers.ofString("x"))));
        JsonNode last = write(path(started) + "/stdin?close=true", "end\n".getBytes(StandardCharsets.US_ASCII));
        assertThat(last.get("closed").booleanValue()).isTrue();
        end(started);
        assertThat(server.api.get(path(started) + "/output").body())
                .isEqualTo(new String(large, StandardCharsets.US_ASCII) + "end\n");
        JsonNode error = InsideServer.answer(
                409,
                server.api.send(server.api.request(path(started) + "/stdin").POST(BodyPublishers.ofString("x"))));
        assertThat(error.at("/error/message").stringValue()).contains("has ended");
    }

    private JsonNode write(String path, byte[] body) throws IOException, InterruptedException {
        return InsideServer.answer(
                200, server.api.send(server.api.request(path).POST(BodyPublishers.ofByteArray(body))));
    }

    @Test
    void events_come_with_ids_and_go_on_behind_one() throws Exception {
        JsonNode started = run("print a\nerr b\ndrop 7\nprint c\nexit 1");
        List<SseEvent> all = events(server.api.get(path(started) + "/events").body());
        assertThat(all.stream().map(SseEvent::name))
                .containsExactly("started", "stdout", "stderr", "gap", "stdout", "exited");
        assertThat(all.stream().map(SseEvent::id)).containsExactly("1", "2", "3", "4", "5", "6");
        schemas.fits("GapEvent", all.get(3).data());
        schemas.fits("Process", all.get(5).data());
        assertThat(all.get(5).data().get("exit_code").intValue()).isEqualTo(1);
        assertThat(events(server.api.get(path(started) + "/events?after=4").body()).stream()
                        .map(SseEvent::name))
                .containsExactly("stdout", "exited");
        String again = server.api
                .send(server.api.request(path(started) + "/events").header("Last-Event-ID", "6"))
                .body();
        assertThat(events(again).stream().map(SseEvent::name)).containsExactly("exited");
        server.get(400, path(started) + "/events?after=x");
    }

    @Test
    void an_emoji_is_whole_for_a_reader_that_comes_again_in_the_middle_of_it() throws Exception {
        byte[] text = "ok é 👩‍🚀 日本\n".getBytes(StandardCharsets.UTF_8);
        JsonNode started = server.post(201, sandbox + "/processes", Map.of("command", "cat", "stdin", true));
        for (int i = 0; i < text.length; i++) {
            write(path(started) + "/stdin", new byte[] {text[i]});
            long printed = i + 1L;
            Eventually.until(() -> printed(started) == printed, () -> printed(started));
        }
        write(path(started) + "/stdin?close=true", new byte[0]);
        end(started);
        List<SseEvent> all = events(server.api.get(path(started) + "/events").body());
        assertThat(bytes(all, "stdout")).isEqualTo(text);
        assertThat(all.stream().filter(e -> e.name().equals("stdout")))
                .allSatisfy(event -> assertThat(event.data().has("text")).isTrue());
        for (SseEvent last : all) {
            List<SseEvent> rest = events(
                    server.api.get(path(started) + "/events?after=" + last.id()).body());
            var seen = new ArrayList<>(all.subList(0, all.indexOf(last) + 1));
            seen.addAll(rest);
            assertThat(bytes(seen, "stdout")).isEqualTo(text);
        }
    }

    private long printed(JsonNode process) {
        try {
            return server.get(200, path(process)).get("stdout_bytes").longValue();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError(e);
        }
    }

    @Test
    void a_start_with_the_accept_header_streams_and_a_closed_stream_ends_nothing() throws Exception {
        HttpResponse<InputStream> stream = server.api.open(server.api
                .request(sandbox + "/processes")
                .header("Accept", "text/event-stream")
                .POST(BodyPublishers.ofString("{\"command\":\"print a\\nwait gate\\nexit 5\"}")));
        try (InputStream body = stream.body()) {
            var text = new StringBuilder();
            while (text.indexOf("\"text\":\"a\\n\"") < 0) {
                text.append((char) body.read());
            }
        }
        JsonNode running = server.get(200, sandbox + "/processes?state=running")
                .get("items")
                .get(0);
        server.core.node.open("gate");
        assertThat(end(running).get("exit_code").intValue()).isEqualTo(5);
    }

    @Test
    void the_same_idempotency_key_gives_the_same_process() throws Exception {
        JsonNode first = withKey(201, "{\"command\":\"print a\"}");
        assertThat(id(withKey(201, "{\"command\":\"print a\"}"))).isEqualTo(id(first));
        withKey(409, "{\"command\":\"print b\"}");
    }

    private JsonNode withKey(int status, String body) throws Exception {
        return InsideServer.answer(
                status,
                server.api.send(server.api
                        .request(sandbox + "/processes")
                        .header("Idempotency-Key", "k")
                        .POST(BodyPublishers.ofString(body))));
    }

    @Test
    void every_process_inside_is_shown_and_can_be_signaled() throws Exception {
        JsonNode started = run("wait never");
        JsonNode ps = server.get(200, sandbox + "/ps");
        schemas.fits("GuestProcessList", ps);
        assertThat(ps.get("items").get(0).get("process_id").stringValue()).isEqualTo(id(started));
        String pid = Integer.toString(started.get("pid").intValue());
        server.post(204, sandbox + "/ps/" + pid + ":signal", Map.of("signal", "KILL"));
        assertThat(end(started).get("signal").intValue()).isEqualTo(9);
        server.post(404, sandbox + "/ps/" + pid + ":signal", Map.of("signal", "KILL"));
    }

    @Test
    void a_main_process_ends_its_sandbox_with_its_exit_code() throws Exception {
        JsonNode made =
                server.post(201, "/v1/sandboxes", Map.of("main", Map.of("command", "print a\nwait gate\nexit 3")));
        schemas.fits("Sandbox", made);
        String path = "/v1/sandboxes/" + made.get("sandbox_id").stringValue();
        String main = path + "/processes/" + made.get("main_process_id").stringValue();
        assertThat(server.get(200, main).get("main").booleanValue()).isTrue();
        server.core.node.open("gate");
        Eventually.until(() -> ended(path), () -> path);
        JsonNode ended = server.get(200, path);
        schemas.fits("Sandbox", ended);
        assertThat(ended.get("end_reason").stringValue()).isEqualTo("main_exited");
        assertThat(ended.get("exit_code").intValue()).isEqualTo(3);
        assertThat(server.api.get(main + "/output").body()).isEqualTo("a\n");
        server.post(410, path + "/processes", Map.of("command", "print"));
    }

    private boolean ended(String path) {
        try {
            return server.get(200, path).get("state").stringValue().equals("ended");
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    @Test
    void contexts_are_opened_used_restarted_and_closed() throws Exception {
        JsonNode made = server.post(201, sandbox + "/contexts", Map.of("language", "bash", "cwd", "/srv"));
        schemas.fits("Context", made);
        assertThat(made.get("cwd").stringValue()).isEqualTo("/srv");
        assertThat(made.get("default").booleanValue()).isFalse();
        String context = sandbox + "/contexts/" + made.get("context_id").stringValue();
        JsonNode ran = server.post(200, context + "/executions", Map.of("code", "set x 1\nget x"));
        schemas.fits("Outcome", ran);
        assertThat(ran.get("output").stringValue()).isEqualTo("1");
        JsonNode list = server.get(200, sandbox + "/contexts");
        schemas.fits("ContextList", list);
        assertThat(list.get("items")).hasSize(2);
        assertThat(server.get(200, context + "/executions").get("items")).hasSize(1);
        JsonNode restarted = server.post(200, context + ":restart", Map.of());
        schemas.fits("Context", restarted);
        assertThat(restarted.get("restarts").intValue()).isEqualTo(1);
        assertThat(server.post(200, context + "/executions", Map.of("code", "get x"))
                        .get("output")
                        .stringValue())
                .isEqualTo("undefined");
        server.delete(204, context);
        server.get(404, context);
        server.get(404, context + "/executions");
    }

    @Test
    void code_in_the_background_is_followed_by_its_id_and_interrupted_by_its_context() throws Exception {
        String context = sandbox + "/contexts/"
                + server.post(201, sandbox + "/contexts", Map.of())
                        .get("context_id")
                        .stringValue();
        schemas.fits("Interrupted", server.post(200, context + ":interrupt", Map.of()));
        JsonNode started =
                server.post(202, context + "/executions", Map.of("code", "print a\nwait never", "background", true));
        schemas.fits("StartEvent", started);
        String execution = started.get("execution_id").stringValue();
        JsonNode interrupted = server.post(200, context + ":interrupt", Map.of());
        assertThat(interrupted.get("execution_id").stringValue()).isEqualTo(execution);
        String events =
                server.api.get("/v1/executions/" + execution + "/events").body();
        assertThat(events).contains("event: done", "\"exit_reason\":\"interrupted\"");
        server.post(400, context + "/executions", Map.of("code", "print", "background", true, "stream", true));
    }

    @Test
    void what_a_sandbox_uses_is_shown_with_its_history() throws Exception {
        Instant noon = Instant.parse("2026-01-02T12:00:00Z");
        for (int i = 0; i < 3; i++) {
            server.core.node.use(noon.plusSeconds(5L * i), Duration.ofMillis(1000L * i));
            server.core.core().sampleUsage();
        }
        JsonNode all = server.get(200, sandbox + "/metrics?from=2026-01-02T12:00:00Z&limit=2");
        schemas.fits("UsageList", all);
        assertThat(all.get("items")).hasSize(2);
        assertThat(all.get("items").get(1).get("cpu_percent").doubleValue()).isEqualTo(20);
        assertThat(all.get("current").get("at").stringValue()).isEqualTo("2026-01-02T12:00:10Z");
        JsonNode rest = server.get(
                200,
                sandbox + "/metrics?from=2026-01-02T12:00:00Z&cursor="
                        + all.get("next").stringValue());
        assertThat(rest.get("items")).hasSize(1);
        server.get(400, sandbox + "/metrics?from=yesterday");
    }

    @Test
    void processes_are_counted() throws Exception {
        end(run("exit 1"));
        run("wait never");
        assertThat(server.api.metrics.text(server.core.core().status())).contains("atoll_processes_running 1");
    }
}
