package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.execution.ExecutionError;
import atoll.core.execution.ExecutionResult;
import atoll.core.execution.MimeBundle;
import atoll.core.execution.StandardStream;
import atoll.http.Json;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.databind.JsonNode;

class CodeExecApiTest {
    private ApiServer api;

    @BeforeEach
    void start() throws IOException {
        api = new ApiServer();
    }

    @AfterEach
    void stop() {
        api.close();
    }

    @Test
    void the_reference_example_answers_literally() throws Exception {
        HttpResponse<String> first =
                api.post("/v1/code_exec", "{\"tool\":\"code_exec\",\"code\":\"x = 1 + 1\\nprint(x)\"}");
        assertThat(first.statusCode()).isEqualTo(200);
        assertThat(first.body()).startsWith("{\"output\":\"2\",\"sandbox_id\":\"sb-exec-");
        String sandbox = ApiServer.json(first).get("sandbox_id").stringValue();
        JsonNode second = api.exec(Map.of("code", "print(x)", "sandbox_id", sandbox));
        assertThat(second.get("output").stringValue()).isEqualTo("2");
        assertThat(second.get("sandbox_id").stringValue()).isEqualTo(sandbox);
    }

    @Test
    void an_exception_of_the_code_is_part_of_a_200() throws Exception {
        api.atoll.program(
                "1/0",
                terminal -> terminal.fail(new ExecutionError("ZeroDivisionError", "division by zero", "line 1")));
        JsonNode reply = api.exec(Map.of("code", "1/0"));
        assertThat(reply.get("exit_reason").stringValue()).isEqualTo("error");
        assertThat(Json.text(reply.get("error")))
                .isEqualTo(
                        "{\"name\":\"ZeroDivisionError\",\"message\":\"division by zero\",\"traceback\":\"line 1\"}");
    }

    @Test
    void a_displayed_value_is_json_in_the_reply_and_in_its_event() throws Exception {
        var bundle = new MimeBundle("{\"text/plain\":\"2\",\"application/json\":{\"a\":[1]}}", Optional.of("2"));
        api.atoll.program("2", terminal -> terminal.display(new ExecutionResult(true, bundle, 0)));
        JsonNode reply = api.exec(Map.of("code", "2"));
        assertThat(reply.at("/results/0/data/application~1json/a/0").intValue()).isEqualTo(1);
        JsonNode event = only(api.stream("2"), "result");
        assertThat(event.at("/data/text~1plain").stringValue()).isEqualTo("2");
        assertThat(event.get("main").booleanValue()).isTrue();
    }

    @Test
    void what_was_left_out_and_how_it_is_replaced_is_said_of_a_result() throws Exception {
        var bundle = new MimeBundle("{\"text/plain\":\"2\"}", Optional.of("2"));
        api.atoll.program(
                "2",
                terminal -> terminal.display(new ExecutionResult(
                        false,
                        bundle,
                        7,
                        "{\"image/png\":{\"width\":2}}",
                        Map.of("image/png", 7L),
                        Optional.of("bar"),
                        true,
                        true)));
        JsonNode event = only(api.stream("2"), "result");
        assertThat(Json.text(event))
                .isEqualTo(
                        "{\"main\":false,\"data\":{\"text/plain\":\"2\"},\"metadata\":{\"image/png\":{\"width\":2}},"
                                + "\"truncated_bytes\":7,\"left_out\":{\"image/png\":7},\"display_id\":\"bar\",\"update\":true,\"clear\":true}");
    }

    @Test
    void files_are_listed_where_that_is_asked_for() throws Exception {
        JsonNode plain = api.exec(Map.of("code", "1"));
        assertThat(plain.get("files").isNull()).isTrue();
        assertThat(plain.get("files_incomplete").isNull()).isTrue();
        JsonNode listed = api.exec(Map.of("code", "1", "list_files", true));
        assertThat(listed.get("files_incomplete").booleanValue()).isFalse();
        JsonNode file = listed.at("/files/0");
        assertThat(file.get("path").stringValue()).isEqualTo("/home/user/a.csv");
        assertThat(file.get("size").intValue()).isEqualTo(3);
        assertThat(file.get("mime_type").stringValue()).isEqualTo("text/csv");
        JsonNode record = ApiServer.json(
                api.get("/v1/executions/" + listed.get("execution_id").stringValue()));
        assertThat(record.get("files")).isEqualTo(listed.get("files"));
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{\"code\":\"1\",\"list_files\":\"yes\"} | 400 | invalid_request",
                "{\"code\":\"1\",\"sandbox_id\":\"sb-exec-0000000000g00r00000000000r\"} | 404 | sandbox_not_found",
                "{\"code\":\"1\",\"sandbox_id\":\"sb-exec-2z9sj7e9fa8tp8kcycy0zsb4g7\"} | 404 | sandbox_not_found",
                "{\"code\":\"1\",\"sandbox_id\":\"sb-exec-zzzzzzzzzzzzzzzzzzzzzzzzzz\"} | 404 | sandbox_not_found",
                "{\"code\":\"1\",\"sandbox_id\":\"ctx-0000000000g00r00000000000r\"} | 400 | invalid_request",
                "{\"code\":\"1\",\"sandbox_id\":\"sb-exec-0000000000g00r0000000000\"} | 400 | invalid_request",
                "{\"code\":\"1\",\"sandbox_id\":\"sb-exec-0000000000g00r0000000000iu\"} | 400 | invalid_request",
                "{\"code\":\"1\",\"sandbox_id\":\"../../etc/passwd\"} | 400 | invalid_request",
                "{\"code\":\"1\",\"template\":\"none\"} | 404 | template_not_found",
                "{\"code\":\"1\",\"language\":\"cobol\"} | 400 | language_not_found",
                "{\"code\":\"1\",\"timeout_seconds\":-1} | 400 | invalid_request",
                "{\"code\":\"1\",\"timeout_seconds\":\"soon\"} | 400 | invalid_request",
                "{\"code\":\"1\",\"timeout_seconds\":1e400} | 400 | invalid_request",
                "{\"code\":\"1\",\"env\":[\"A=B\"]} | 400 | invalid_request",
                "{\"code\":\"1\",\"env\":{\"A\":1}} | 400 | invalid_request",
                "{\"code\":\"1\",\"tool\":\"other\"} | 400 | invalid_request",
                "{\"code\":\"1\",\"sandboxid\":\"x\"} | 400 | invalid_request",
                "{\"code\":\"1\",\"stream\":\"yes\"} | 400 | invalid_request",
                "{\"code\":\"\\ud800\"} | 400 | invalid_request",
                "{\"code\":5} | 400 | invalid_request",
                "{} | 400 | invalid_request",
                "[] | 400 | invalid_request",
                "null | 400 | invalid_request",
                "{\"code\":\"1\"} trailing | 400 | invalid_request",
                "{ | 400 | invalid_request",
            })
    void wrong_requests_get_a_clear_error(String body, int status, String code) throws Exception {
        HttpResponse<String> response = api.post("/v1/code_exec", body);
        assertThat(response.statusCode()).isEqualTo(status);
        JsonNode error = ApiServer.json(response).get("error");
        assertThat(error.get("code").stringValue()).isEqualTo(code);
        assertThat(error.propertyNames()).containsExactly("code", "message", "cause", "remediation");
        assertThat(error.get("remediation").stringValue()).isNotEmpty();
        assertThat(api.exec(Map.of("code", "print(2)")).get("output").stringValue())
                .isEqualTo("2");
    }

    @Test
    void a_wrong_key_is_401_before_anything_is_read() throws Exception {
        HttpResponse<String> response = api.send(api.request("/v1/code_exec")
                .setHeader("Authorization", "Bearer wrong")
                .POST(BodyPublishers.ofString("{")));
        assertThat(response.statusCode()).isEqualTo(401);
        assertThat(ApiServer.json(response).at("/error/code").stringValue()).isEqualTo("unauthenticated");
    }

    @Test
    void code_of_ten_megabytes_is_run() throws Exception {
        String code = "x = '" + "z".repeat(10 << 20) + "'";
        assertThat(api.exec(Map.of("code", code)).get("output").stringValue()).isEqualTo("2");
    }

    @ParameterizedTest
    @ValueSource(strings = {"z", "é"})
    void code_above_sixteen_mebibytes_is_413(String letter) throws Exception {
        String code = letter.repeat((16 << 20) / letter.getBytes(StandardCharsets.UTF_8).length + 1);
        HttpResponse<String> response = api.post("/v1/code_exec", Json.text(Map.of("code", code)));
        assertThat(response.statusCode()).isEqualTo(413);
        assertThat(ApiServer.json(response).at("/error/code").stringValue()).isEqualTo("request_too_large");
    }

    @Test
    void a_body_above_the_limit_is_413() throws Exception {
        HttpResponse<String> response =
                api.post("/v1/code_exec", " ".repeat((int) ApiServer.CONFIG.maxBodyBytes() + 1));
        assertThat(response.statusCode()).isEqualTo(413);
    }

    @Test
    void the_same_idempotency_key_gives_the_same_execution_and_another_request_a_conflict() throws Exception {
        HttpResponse<String> first = withKey("{\"code\":\"print(2)\"}");
        HttpResponse<String> again = withKey("{\"code\":\"print(2)\"}");
        assertThat(ApiServer.json(again).get("execution_id"))
                .isEqualTo(ApiServer.json(first).get("execution_id"));
        assertThat(withKey("{\"code\":\"print(3)\"}").statusCode()).isEqualTo(409);
    }

    private HttpResponse<String> withKey(String body) throws Exception {
        return api.send(
                api.request("/v1/code_exec").header("Idempotency-Key", "k1").POST(BodyPublishers.ofString(body)));
    }

    @Test
    void a_stream_begins_with_the_ids_and_ends_with_the_whole_outcome() throws Exception {
        api.atoll.program("both", terminal -> {
            terminal.print("out\n");
            terminal.print(StandardStream.STDERR, "err\n".getBytes(StandardCharsets.UTF_8));
            terminal.drop(StandardStream.STDOUT, 7);
        });
        List<ApiServer.Event> events = api.stream("both");
        assertThat(events.stream().map(ApiServer.Event::name))
                .containsExactly("start", "output", "output", "gap", "done");
        assertThat(Json.text(events.get(1).data())).isEqualTo("{\"stream\":\"stdout\",\"text\":\"out\\n\"}");
        assertThat(Json.text(events.get(2).data())).isEqualTo("{\"stream\":\"stderr\",\"text\":\"err\\n\"}");
        assertThat(Json.text(events.get(3).data())).isEqualTo("{\"stream\":\"stdout\",\"offset\":4,\"bytes\":7}");
        assertThat(events.get(4).data().get("execution_id"))
                .isEqualTo(events.get(0).data().get("execution_id"));
        assertThat(events.get(4).data().get("stdout").stringValue()).isEqualTo("out\n");
    }

    @Test
    void the_accept_header_asks_for_a_stream_too() throws Exception {
        HttpResponse<String> response = api.send(api.request("/v1/code_exec")
                .header("Accept", "text/event-stream")
                .POST(BodyPublishers.ofString("{\"code\":\"1\"}")));
        assertThat(response.headers().firstValue("content-type")).contains("text/event-stream");
        assertThat(ApiServer.events(response.body()).getLast().name()).isEqualTo("done");
    }

    @Test
    void an_emoji_split_at_every_offset_stays_whole() throws Exception {
        byte[] text = "ok é 👩‍🚀 日本\n".getBytes(StandardCharsets.UTF_8);
        for (int cut = 1; cut < text.length; cut++) {
            int at = cut;
            api.atoll.program("cut " + cut, terminal -> {
                terminal.print(StandardStream.STDOUT, Arrays.copyOf(text, at));
                terminal.print(StandardStream.STDOUT, Arrays.copyOfRange(text, at, text.length));
            });
            assertThat(textOf(api.stream("cut " + cut))).isEqualTo(new String(text, StandardCharsets.UTF_8));
        }
    }

    @Test
    void all_bytes_there_are_arrive_unchanged() throws Exception {
        byte[] all = new byte[70_000];
        for (int i = 0; i < all.length; i++) {
            all[i] = (byte) ((i * 31) >> 3);
        }
        api.atoll.program("bytes", terminal -> terminal.print(StandardStream.STDOUT, all));
        assertThat(bytesOf(api.stream("bytes"))).isEqualTo(all);
    }

    @Test
    void the_first_byte_is_there_before_the_program_goes_on() throws Exception {
        var seen = new CountDownLatch(1);
        api.atoll.program("slow", terminal -> {
            terminal.print("a");
            terminal.print(seen.await(20, TimeUnit.SECONDS) ? "b" : "never seen");
        });
        HttpResponse<InputStream> response = api.open(
                api.request("/v1/code_exec").POST(BodyPublishers.ofString("{\"code\":\"slow\",\"stream\":true}")));
        try (InputStream body = response.body()) {
            var text = new StringBuilder();
            while (text.indexOf("\"text\":\"a\"") < 0) {
                text.append((char) body.read());
            }
            seen.countDown();
            assertThat(new String(body.readAllBytes(), StandardCharsets.UTF_8))
                    .contains("\"text\":\"b\"")
                    .contains("event: done");
        }
    }

    @Test
    void a_client_that_disconnects_mid_run_does_not_end_the_run() throws Exception {
        var gone = new CountDownLatch(1);
        api.atoll.program("long", terminal -> {
            terminal.print("begun\n");
            assertThat(gone.await(20, TimeUnit.SECONDS)).isTrue();
            while (terminal.attached()) {
                terminal.print("more\n");
            }
            terminal.print("and the end\n");
        });
        String sandbox = disconnectAfter("begun", "{\"code\":\"long\",\"stream\":true}");
        gone.countDown();
        assertThat(endedOutput(sandbox)).startsWith("begun\n").endsWith("and the end\n");
    }

    @Test
    void a_client_that_does_not_read_is_dropped_and_the_run_goes_on() throws Exception {
        byte[] block = "x".repeat(64 << 10).getBytes(StandardCharsets.US_ASCII);
        api.atoll.program("flood", terminal -> {
            while (terminal.attached()) {
                terminal.print(StandardStream.STDOUT, block);
            }
        });
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), api.port())) {
            socket.getOutputStream().write(rawRequest("{\"code\":\"flood\",\"stream\":true}"));
            // Nothing is read. The program ends by itself once its only reader was dropped.
            assertThat(onlyEnded().get("exit_reason").stringValue()).isEqualTo("completed");
        }
    }

    private String disconnectAfter(String marker, String body) throws IOException {
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), api.port())) {
            socket.getOutputStream().write(rawRequest(body));
            var text = new StringBuilder();
            while (text.indexOf(marker) < 0) {
                text.append((char) socket.getInputStream().read());
            }
            socket.setSoLinger(true, 0);
            int at = text.indexOf("sb-exec-");
            return text.substring(at, at + "sb-exec-".length() + 26);
        }
    }

    private static byte[] rawRequest(String body) {
        String head = "POST /v1/code_exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + FakeAtoll.KEY;
        return (head + "\r\nContent-Length: " + body.length() + "\r\n\r\n" + body).getBytes(StandardCharsets.US_ASCII);
    }

    private String endedOutput(String sandbox) throws Exception {
        JsonNode outcome = onlyEnded();
        assertThat(outcome.get("sandbox_id").stringValue()).isEqualTo(sandbox);
        return outcome.get("stdout").stringValue();
    }

    /** The outcome of the one execution there is, once it has ended. */
    private JsonNode onlyEnded() throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (true) {
            JsonNode items = ApiServer.json(api.get("/v1/executions")).get("items");
            if (items.size() == 1 && items.get(0).get("state").stringValue().equals("ended")) {
                return items.get(0);
            }
            assertThat(System.nanoTime()).as("not ended in time: %s", items).isLessThan(deadline);
            Thread.onSpinWait();
        }
    }

    private static JsonNode only(List<ApiServer.Event> events, String name) {
        List<ApiServer.Event> found =
                events.stream().filter(event -> event.name().equals(name)).toList();
        assertThat(found).hasSize(1);
        return found.getFirst().data();
    }

    private static String textOf(List<ApiServer.Event> events) {
        var text = new StringBuilder();
        for (ApiServer.Event event : events) {
            if (event.name().equals("output")) {
                text.append(event.data().get("text").stringValue());
            }
        }
        return text.toString();
    }

    private static byte[] bytesOf(List<ApiServer.Event> events) {
        var bytes = new ByteArrayOutputStream();
        for (ApiServer.Event event : events) {
            if (event.name().equals("output")) {
                JsonNode text = event.data().get("text");
                bytes.writeBytes(
                        text == null
                                ? Base64.getDecoder()
                                        .decode(event.data().get("base64").stringValue())
                                : text.stringValue().getBytes(StandardCharsets.UTF_8));
            }
        }
        return bytes.toByteArray();
    }
}
