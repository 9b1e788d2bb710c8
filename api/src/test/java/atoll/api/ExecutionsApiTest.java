package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.http.Json;
import java.io.IOException;
import java.net.URLEncoder;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

/** What ran, searched and exported, over the real core. */
class ExecutionsApiTest {
    private InsideServer server;

    @BeforeEach
    void start() throws Exception {
        server = new InsideServer();
    }

    @AfterEach
    void stop() {
        server.close();
    }

    private JsonNode run(String code, Map<String, ?> more) throws IOException, InterruptedException {
        var body = new java.util.HashMap<String, Object>(more);
        body.put("code", code);
        return server.post(200, "/v1/code_exec", body);
    }

    private static String id(JsonNode ran) {
        return ran.get("execution_id").stringValue();
    }

    private List<String> found(String query) throws IOException, InterruptedException {
        JsonNode list = server.get(200, "/v1/executions?" + query);
        assertThat(list.get("next").isNull()).isTrue();
        return StreamSupport.stream(list.get("items").spliterator(), false)
                .map(ExecutionsApiTest::id)
                .toList();
    }

    @Test
    void they_are_searched_and_filtered() throws Exception {
        JsonNode python = run("print Needle", Map.of("language", "python"));
        JsonNode bash = run("raise ValueError the needle", Map.of("language", "bash"));
        assertThat(found("q=nEEDLE")).containsExactly(id(bash), id(python));
        assertThat(found("q=the+needle")).containsExactly(id(bash));
        assertThat(found("q=hay")).isEmpty();
        assertThat(found("language=bash")).containsExactly(id(bash));
        assertThat(found("language=python&q=needle")).containsExactly(id(python));
        assertThat(found("status=error,timeout")).containsExactly(id(bash));
        assertThat(found("status=completed")).containsExactly(id(python));
        assertThat(found("status=ended")).containsExactly(id(bash), id(python));
        assertThat(found("status=running")).isEmpty();
        String template = server.get(
                        200, "/v1/sandboxes/" + python.get("sandbox_id").stringValue())
                .get("template")
                .stringValue();
        assertThat(found("template=" + template)).contains(id(python));
        assertThat(found("template=none")).isEmpty();
        String begun =
                server.get(200, "/v1/executions/" + id(bash)).get("created_at").stringValue();
        assertThat(found("until=" + Instant.parse(begun).minusMillis(1))).doesNotContain(id(bash));
        assertThat(found("from=" + begun)).contains(id(bash));
        assertThat(found("from=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z"))
                .isEmpty();
    }

    @Test
    void what_is_no_filter_is_refused_and_said() throws Exception {
        for (String wrong : List.of(
                "q=",
                "q=" + "x".repeat(201),
                "status=odd",
                "status=error,",
                "status=running,error",
                "status=error&state=ended",
                "from=yesterday",
                "from=2020-01-02T00:00:00Z&until=2020-01-01T00:00:00Z",
                "language=cobol")) {
            JsonNode error = server.get(400, "/v1/executions?" + wrong).get("error");
            assertThat(error.get("message").stringValue()).as(wrong).contains("expected");
        }
    }

    @Test
    void sandboxes_are_searched_by_name_and_label() throws Exception {
        JsonNode one =
                server.post(201, "/v1/sandboxes", Map.of("name", "the-work", "labels", Map.of("team", "Blue sky")));
        server.sandbox();
        for (String text :
                List.of("THE-w", "team=blue SKY", one.get("sandbox_id").stringValue())) {
            JsonNode list = server.get(200, "/v1/sandboxes?q=" + URLEncoder.encode(text, StandardCharsets.UTF_8));
            assertThat(list.get("items").size()).as(text).isEqualTo(1);
            assertThat(list.get("items").get(0).get("sandbox_id")).isEqualTo(one.get("sandbox_id"));
        }
        assertThat(server.get(400, "/v1/sandboxes?q=").get("error").isObject()).isTrue();
    }

    @Test
    void a_notebook_has_all_cells_in_their_order_with_all_they_said() throws Exception {
        JsonNode first = run("print one", Map.of("language", "python"));
        String sandbox = first.get("sandbox_id").stringValue();
        var there = Map.of("sandbox_id", sandbox, "language", "python");
        JsonNode failed = run("raise ValueError it failed", there);
        JsonNode shown = run("show 6", there);
        JsonNode bash = run("print two", Map.of("sandbox_id", sandbox, "language", "bash"));
        HttpResponse<String> response = server.api.get("/v1/executions:notebook?sandbox_id=" + sandbox);
        assertThat(response.statusCode()).isEqualTo(200);
        assertThat(response.headers().firstValue("Content-Type")).contains("application/x-ipynb+json");
        assertThat(response.headers().firstValue("Content-Disposition"))
                .contains("attachment; filename=\"" + sandbox + ".ipynb\"");
        JsonNode notebook = Json.mapper().readTree(response.body());
        assertThat(notebook.get("nbformat").intValue()).isEqualTo(4);
        assertThat(notebook.at("/metadata/kernelspec/name").stringValue()).isEqualTo("python3");
        assertThat(notebook.at("/metadata/atoll/complete").booleanValue()).isTrue();
        JsonNode cells = notebook.get("cells");
        assertThat(StreamSupport.stream(cells.spliterator(), false)
                        .map(cell -> cell.get("id").stringValue()))
                .containsExactly(id(first), id(failed), id(shown), id(bash));
        assertThat(cells.get(0).at("/outputs/0/text").stringValue()).isEqualTo("one\n");
        assertThat(cells.get(1).at("/outputs/0/ename").stringValue()).isEqualTo("ValueError");
        assertThat(cells.get(1).at("/outputs/0/traceback").isArray()).isTrue();
        JsonNode value = cells.get(2).at("/outputs/0");
        assertThat(value.get("data").get("text/plain").isString()).isTrue();
        assertThat(cells.get(3).get("source").stringValue()).isEqualTo("%%bash\nprint two");
        assertThat(cells.get(3).get("execution_count").intValue()).isEqualTo(4);
    }

    @Test
    void a_notebook_of_one_context_has_its_cells_alone_and_one_of_many_the_newest() throws Exception {
        JsonNode first = run("print one", Map.of("language", "python"));
        String sandbox = first.get("sandbox_id").stringValue();
        JsonNode bash = run("print two", Map.of("sandbox_id", sandbox, "language", "bash"));
        String of = "/v1/executions:notebook?sandbox_id=" + sandbox;
        JsonNode one =
                server.get(200, of + "&context_id=" + bash.get("context_id").stringValue());
        assertThat(one.get("cells").size()).isEqualTo(1);
        assertThat(one.at("/cells/0/source").stringValue()).isEqualTo("print two");
        assertThat(one.at("/metadata/kernelspec/name").stringValue()).isEqualTo("bash");
        JsonNode newest = server.get(200, of + "&limit=1");
        assertThat(newest.at("/cells/0/cell_type").stringValue()).isEqualTo("markdown");
        assertThat(newest.at("/cells/1/id").stringValue()).isEqualTo(id(bash));
        assertThat(newest.at("/metadata/atoll/complete").booleanValue()).isFalse();
    }

    @Test
    void a_notebook_of_nothing_is_not_found() throws Exception {
        assertThat(server.get(400, "/v1/executions:notebook")
                        .at("/error/message")
                        .stringValue())
                .contains("sandbox_id");
        String empty = server.sandbox().replace("/v1/sandboxes/", "");
        assertThat(server.get(404, "/v1/executions:notebook?sandbox_id=" + empty)
                        .at("/error/code")
                        .stringValue())
                .isEqualTo("execution_not_found");
    }
}
