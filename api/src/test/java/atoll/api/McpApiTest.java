package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.execution.ExecutionError;
import atoll.core.execution.ExecutionResult;
import atoll.core.execution.MimeBundle;
import atoll.http.Json;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.databind.JsonNode;

class McpApiTest {
    private static final String MODERN_META =
            "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientCapabilities\":{}}";

    private ApiServer api;

    @BeforeEach
    void start() throws IOException {
        api = new ApiServer();
    }

    @AfterEach
    void stop() {
        api.close();
    }

    @ParameterizedTest
    @CsvSource({
        "2025-03-26, 2025-03-26",
        "2025-06-18, 2025-06-18",
        "2025-11-25, 2025-11-25",
        "2024-11-05, 2024-11-05",
        "2024-10-07, 2024-10-07",
        "1999-01-01, 2025-11-25"
    })
    void initialize_agrees_on_a_version_both_know(String asked, String agreed) throws Exception {
        HttpResponse<String> response = post(
                "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"%s\",\"capabilities\":{},\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}"
                        .formatted(asked));
        assertThat(ApiServer.json(response).at("/result/protocolVersion").stringValue())
                .isEqualTo(agreed);
        assertThat(response.headers().firstValue("mcp-session-id")).isPresent();
    }

    @Test
    void the_tool_has_the_schemas_of_the_native_api() throws Exception {
        JsonNode tool = result("{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"tools/list\"}")
                .at("/tools/0");
        JsonNode schemas = ApiServer.json(api.get("/openapi.json")).at("/components/schemas");
        assertThat(tool.get("name").stringValue()).isEqualTo("code_exec");
        for (String field : tool.at("/inputSchema/properties").propertyNames()) {
            assertThat(tool.at("/inputSchema/properties/" + field))
                    .isEqualTo(schemas.at("/CodeExecRequest/properties/" + field));
        }
        assertThat(tool.at("/outputSchema/required")).isEqualTo(schemas.at("/Outcome/required"));
    }

    @Test
    void a_call_answers_with_text_and_structured_content() throws Exception {
        JsonNode result = call("{\"code\":\"print(2)\"}");
        String sandbox = result.at("/structuredContent/sandbox_id").stringValue();
        assertThat(result.at("/content/0/text").stringValue()).isEqualTo("2\n[sandbox_id: " + sandbox + "]");
        assertThat(result.at("/structuredContent/output").stringValue()).isEqualTo("2");
        assertThat(result.get("isError").booleanValue()).isFalse();
    }

    @Test
    void an_exception_is_an_error_that_the_model_can_read() throws Exception {
        api.atoll.program(
                "1/0",
                terminal -> terminal.fail(new ExecutionError("ZeroDivisionError", "division by zero", "line 1")));
        JsonNode result = call("{\"code\":\"1/0\"}");
        assertThat(result.get("isError").booleanValue()).isTrue();
        assertThat(result.at("/structuredContent/error/name").stringValue()).isEqualTo("ZeroDivisionError");
    }

    @Test
    void an_image_is_image_content() throws Exception {
        var bundle = new MimeBundle("{\"image/png\":\"aGk=\",\"text/plain\":\"<Figure>\"}", Optional.of("<Figure>"));
        api.atoll.program("plot", terminal -> terminal.display(new ExecutionResult(true, bundle, 0)));
        JsonNode image = call("{\"code\":\"plot\"}").at("/content/1");
        assertThat(Json.text(image)).isEqualTo("{\"type\":\"image\",\"data\":\"aGk=\",\"mimeType\":\"image/png\"}");
    }

    @Test
    void structured_content_repeats_no_picture_and_holds_no_form_that_nobody_would_read() throws Exception {
        String long64 = "x".repeat(70_000);
        var bundle = new MimeBundle(
                "{\"text/plain\":\"f\",\"image/png\":\"aGk=\",\"application/pdf\":\"aGk=\",\"text/html\":\"" + long64
                        + "\",\"application/vnd.atoll.table.v1+json\":{\"columns\":[\"" + long64
                        + "\"]},\"image/jpeg\":5}",
                Optional.of("f"));
        api.atoll.program("plot", terminal -> terminal.display(new ExecutionResult(true, bundle, 0)));
        JsonNode answer = call("{\"code\":\"plot\"}");
        JsonNode result = answer.at("/structuredContent/results/0");
        assertThat(Json.text(result.get("data"))).isEqualTo("{\"text/plain\":\"f\"}");
        assertThat(result.get("left_out").propertyNames())
                .containsExactly("application/pdf", "application/vnd.atoll.table.v1+json", "image/jpeg", "text/html");
        assertThat(answer.at("/structuredContent/truncated").booleanValue()).isTrue();
        assertThat(answer.get("content").size()).isEqualTo(2);
    }

    @Test
    void files_are_named_to_the_model_where_it_asks_for_them() throws Exception {
        JsonNode answer = call("{\"code\":\"1\",\"list_files\":true}");
        assertThat(answer.at("/content/0/text").stringValue()).contains("[files: /home/user/a.csv (3 bytes)]");
        assertThat(answer.at("/structuredContent/files/0/mime_type").stringValue())
                .isEqualTo("text/csv");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{}",
                "{\"code\":1}",
                "{\"code\":\"1\",\"sandbox_id\":\"x\"}",
                "{\"code\":\"1\",\"stream\":true}",
                "{\"code\":\"1\",\"language\":\"cobol\"}"
            })
    void what_cannot_be_run_is_an_error_result_that_says_why(String arguments) throws Exception {
        JsonNode result = call(arguments);
        assertThat(result.get("isError").booleanValue()).isTrue();
        assertThat(result.at("/content/0/text").stringValue()).contains(": ");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{\"code\":\"1\",\"sandbox_id\":\"\",\"context_id\":\"\",\"template\":\"\",\"language\":\" \",\"timeout_seconds\":\"\",\"env\":\"\"}",
                "{\"code\":\"1\",\"sandbox_id\":null,\"timeout_seconds\":null,\"env\":null,\"list_files\":null}",
                "{\"code\":\"1\",\"timeout_seconds\":\"10\",\"env\":\"{\\\"A\\\":\\\"1\\\"}\",\"list_files\":\"true\"}"
            })
    void arguments_are_taken_as_models_and_clients_mean_them(String arguments) throws Exception {
        JsonNode result = call(arguments);
        assertThat(result.get("isError").booleanValue()).isFalse();
        assertThat(result.at("/structuredContent/files").isArray()).isEqualTo(arguments.contains("\"true\""));
    }

    @Test
    void an_argument_that_spells_no_value_is_refused_as_what_it_is() throws Exception {
        JsonNode result = call("{\"code\":\"1\",\"timeout_seconds\":\"soon\"}");
        assertThat(result.at("/content/0/text").stringValue())
                .startsWith("invalid_request: timeout_seconds: a string (expected: a number of seconds)");
    }

    @Test
    void an_exit_code_is_told_to_the_model() throws Exception {
        api.atoll.program("leave", terminal -> terminal.exit(3));
        JsonNode result = call("{\"code\":\"leave\"}");
        assertThat(result.at("/content/0/text").stringValue()).startsWith("(no output)\n[exited]\n[exit code 3]\n");
        assertThat(result.get("isError").booleanValue()).isTrue();
    }

    @Test
    void output_longer_than_a_model_should_read_is_cut_in_the_middle() throws Exception {
        api.atoll.program("long", terminal -> terminal.print("a" + "😀".repeat(50_000) + "z"));
        JsonNode result = call("{\"code\":\"long\"}");
        assertThat(result.at("/content/0/text").stringValue())
                .hasSizeLessThan(70_000)
                .contains("characters left out")
                .contains("😀z\n");
        assertThat(result.at("/structuredContent/truncated").booleanValue()).isTrue();
        assertThat(result.at("/structuredContent/stdout_bytes").intValue()).isEqualTo(200_002);
    }

    @Test
    void progress_streams_the_output_when_a_token_is_given() throws Exception {
        api.atoll.program("two", terminal -> {
            terminal.print("one\n");
            terminal.print("two\n");
        });
        String body =
                "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":\"code_exec\",\"arguments\":{\"code\":\"two\"},\"_meta\":{\"progressToken\":\"t\"}}}";
        List<ApiServer.Event> events = ApiServer.events(post(body).body());
        assertThat(events).hasSize(3);
        assertThat(Json.text(events.get(1).data().get("params")))
                .isEqualTo("{\"progressToken\":\"t\",\"progress\":8,\"message\":\"two\\n\"}");
        assertThat(events.get(2).data().at("/result/structuredContent/stdout").stringValue())
                .isEqualTo("one\ntwo\n");
    }

    @Test
    void a_cancellation_of_the_session_interrupts_its_call_and_only_its() throws Exception {
        api.atoll.program("wait", terminal -> {
            terminal.print("waiting\n");
            terminal.awaitInterrupt();
        });
        String body =
                "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/call\",\"params\":{\"name\":\"code_exec\",\"arguments\":{\"code\":\"wait\"},\"_meta\":{\"progressToken\":1}}}";
        HttpResponse<InputStream> answer = api.open(mcp(body).header("Mcp-Session-Id", "mine"));
        try (InputStream stream = answer.body()) {
            var text = new StringBuilder();
            while (text.indexOf("waiting") < 0) {
                text.append((char) stream.read());
            }
            String cancel = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":9}}";
            assertThat(api.send(mcp(cancel).header("Mcp-Session-Id", "other")).statusCode())
                    .isEqualTo(202);
            assertThat(api.get("/v1/executions?state=running").body()).contains("\"state\":\"running\"");
            assertThat(api.send(mcp(cancel).header("Mcp-Session-Id", "mine")).statusCode())
                    .isEqualTo(202);
            assertThat(new String(stream.readAllBytes(), StandardCharsets.UTF_8))
                    .contains("\"exit_reason\":\"interrupted\"");
        }
    }

    @Test
    void a_cancellation_that_comes_before_the_sandbox_is_there_interrupts_what_is_begun_then() throws Exception {
        var asked = new CountDownLatch(1);
        var ready = new CountDownLatch(1);
        api.atoll.untilThere(asked, ready);
        api.atoll.program("wait", FakeAtoll.Terminal::awaitInterrupt);
        String body =
                "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"tools/call\",\"params\":{\"name\":\"code_exec\",\"arguments\":{\"code\":\"wait\"}}}";
        var answer = new FutureTask<>(() -> api.send(mcp(body).header("Mcp-Session-Id", "mine")));
        Thread.ofVirtual().start(answer);
        await(asked);
        String cancel = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":9}}";
        assertThat(api.send(mcp(cancel).header("Mcp-Session-Id", "mine")).statusCode())
                .isEqualTo(202);
        ready.countDown();
        assertThat(answer.get(30, TimeUnit.SECONDS).body()).contains("\"exit_reason\":\"interrupted\"");
    }

    /** The newest clients cancel like this, and only a write tells that nobody reads. */
    @Test
    void closing_the_answer_cancels_a_call_of_2026_that_prints_nothing() throws Exception {
        var begun = new CountDownLatch(1);
        var interrupted = new CountDownLatch(1);
        api.atoll.program("wait", terminal -> {
            begun.countDown();
            terminal.awaitInterrupt();
            interrupted.countDown();
        });
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), api.port())) {
            String body =
                    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"code_exec\",\"arguments\":{\"code\":\"wait\"},"
                            + MODERN_META + "}}";
            String request = String.join(
                    "\r\n",
                    "POST /mcp HTTP/1.1",
                    "Host: localhost",
                    "Authorization: Bearer " + FakeAtoll.KEY,
                    "Accept: application/json, text/event-stream",
                    "MCP-Protocol-Version: 2026-07-28",
                    "Mcp-Method: tools/call",
                    "Mcp-Name: code_exec",
                    "Content-Length: " + body.length(),
                    "",
                    body);
            socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
            await(begun);
        }
        // Well before a keep-alive, let alone the end of the test's program, would have told.
        await(interrupted);
    }

    private static void await(CountDownLatch latch) throws InterruptedException {
        assertThat(latch.await(30, TimeUnit.SECONDS)).isTrue();
    }

    @Test
    void notifications_are_202_without_a_body() throws Exception {
        HttpResponse<String> response = post("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
        assertThat(response.statusCode()).isEqualTo(202);
        assertThat(response.body()).isEmpty();
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{ | 400 | -32700",
                "5 | 400 | -32600",
                "[] | 400 | -32600",
                "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"} | 400 | -32600",
                "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"} | 400 | -32600",
                "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"code_exec\",\"arguments\":{\"code\":\"1\"}}} | 400 | -32600",
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nothing\"} | 200 | -32601",
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"other\"}} | 200 | -32602",
            })
    void broken_messages_get_the_error_of_json_rpc(String body, int status, int code) throws Exception {
        HttpResponse<String> response = post(body);
        assertThat(response.statusCode()).isEqualTo(status);
        assertThat(ApiServer.json(response).at("/error/code").intValue()).isEqualTo(code);
    }

    @Test
    void a_batch_is_answered_as_one() throws Exception {
        HttpResponse<String> response = post(
                "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"},{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"code_exec\",\"arguments\":{\"code\":\"1\"}}}]");
        assertThat(ApiServer.json(response)).hasSize(2);
        assertThat(ApiServer.json(response)
                        .at("/1/result/structuredContent/output")
                        .stringValue())
                .isEqualTo("2");
    }

    @Test
    void a_version_that_is_not_served_is_refused_with_those_that_are() throws Exception {
        HttpResponse<String> response = api.send(
                mcp("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}").header("MCP-Protocol-Version", "1999-01-01"));
        assertThat(response.statusCode()).isEqualTo(400);
        assertThat(ApiServer.json(response).at("/error/data/supported/0").stringValue())
                .isEqualTo("2026-07-28");
    }

    @Test
    void a_request_of_2026_needs_no_handshake() throws Exception {
        HttpResponse<String> discovered = api.send(modern("server/discover", "{" + MODERN_META + "}"));
        assertThat(ApiServer.json(discovered).at("/result/supportedVersions/0").stringValue())
                .isEqualTo("2026-07-28");
        HttpResponse<String> called = api.send(
                modern("tools/call", "{\"name\":\"code_exec\",\"arguments\":{\"code\":\"1\"}," + MODERN_META + "}")
                        .header("Mcp-Name", "code_exec"));
        assertThat(ApiServer.json(called).at("/result/resultType").stringValue())
                .isEqualTo("complete");
        assertThat(ApiServer.json(called).at("/result/structuredContent/output").stringValue())
                .isEqualTo("2");
    }

    @Test
    void a_request_of_2026_whose_headers_differ_from_its_body_is_refused() throws Exception {
        HttpResponse<String> response =
                api.send(modern("tools/list", "{" + MODERN_META + "}").setHeader("Mcp-Method", "ping"));
        assertThat(response.statusCode()).isEqualTo(400);
        assertThat(ApiServer.json(response).at("/error/code").intValue()).isEqualTo(-32020);
    }

    @ParameterizedTest
    @CsvSource({
        "https://evil.example, 403",
        "null, 403",
        "http://localhost:3000, 200",
        "http://127.0.0.1, 200",
        "https://agent.example, 200"
    })
    void pages_of_other_origins_are_kept_out(String origin, int status) throws Exception {
        HttpResponse<String> response = api.send(
                mcp("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}").header("Origin", origin));
        assertThat(response.statusCode()).isEqualTo(status);
    }

    @Test
    void pages_that_may_call_are_told_so_by_a_browsers_rules() throws Exception {
        HttpRequest.Builder asked = HttpRequest.newBuilder(api.uri("/mcp"))
                .method("OPTIONS", BodyPublishers.noBody())
                .header("Origin", "https://agent.example")
                .header("Access-Control-Request-Method", "POST")
                .header("Access-Control-Request-Headers", "authorization,content-type,mcp-protocol-version");
        HttpResponse<String> preflight = api.send(asked);
        assertThat(preflight.statusCode()).isEqualTo(204);
        assertThat(preflight.headers().firstValue("Access-Control-Allow-Origin"))
                .contains("https://agent.example");
        assertThat(preflight.headers().firstValue("Access-Control-Allow-Methods"))
                .contains("POST, DELETE");
        assertThat(preflight
                        .headers()
                        .firstValue("Access-Control-Allow-Headers")
                        .orElse(""))
                .contains("Authorization", "Content-Type", "MCP-Protocol-Version", "Mcp-Session-Id", "Mcp-Method");
        HttpResponse<String> called =
                api.send(mcp("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}}")
                        .header("Origin", "https://agent.example"));
        assertThat(called.headers().firstValue("Access-Control-Allow-Origin")).contains("https://agent.example");
        assertThat(called.headers().firstValue("Access-Control-Expose-Headers").orElse(""))
                .contains("Mcp-Session-Id");
        assertThat(called.headers().firstValue("Vary")).contains("Origin");
        assertThat(api.send(asked.setHeader("Origin", "https://evil.example"))
                        .headers()
                        .firstValue("Access-Control-Allow-Origin"))
                .isEmpty();
    }

    @Test
    void there_is_no_stream_to_get_and_a_session_can_be_deleted() throws Exception {
        assertThat(api.get("/mcp").statusCode()).isEqualTo(405);
        assertThat(api.send(api.request("/mcp").DELETE()).statusCode()).isEqualTo(204);
        assertThat(api.send(HttpRequest.newBuilder(api.uri("/mcp")).POST(BodyPublishers.ofString("{}")))
                        .statusCode())
                .isEqualTo(401);
    }

    private HttpRequest.Builder modern(String method, String params) {
        return mcp("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":%s}".formatted(method, params))
                .header("MCP-Protocol-Version", "2026-07-28")
                .header("Mcp-Method", method);
    }

    private HttpRequest.Builder mcp(String body) {
        return api.request("/mcp")
                .header("Accept", "application/json, text/event-stream")
                .POST(BodyPublishers.ofString(body));
    }

    private HttpResponse<String> post(String body) throws Exception {
        return api.send(mcp(body));
    }

    private JsonNode result(String body) throws Exception {
        return ApiServer.json(post(body)).get("result");
    }

    private JsonNode call(String arguments) throws Exception {
        return result(
                "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/call\",\"params\":{\"name\":\"code_exec\",\"arguments\":%s}}"
                        .formatted(arguments));
    }
}
