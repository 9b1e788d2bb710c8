package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.http.Json;
import java.io.IOException;
import java.net.http.HttpRequest.BodyPublishers;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

/** Names, pauses and what was agreed on the life of a sandbox, by HTTP, over the real core and a node in memory. */
class LifecycleApiTest {
    private InsideServer server;
    private OpenApiSchemas schemas;

    @BeforeEach
    void start() throws Exception {
        server = new InsideServer();
        schemas = new OpenApiSchemas(server.get(200, "/openapi.json"));
    }

    @AfterEach
    void stop() {
        server.close();
    }

    private JsonNode fits(String schema, JsonNode answer) {
        schemas.fits(schema, answer);
        return answer;
    }

    private JsonNode patch(int status, String path, String body) throws IOException, InterruptedException {
        return InsideServer.answer(
                status, server.api.send(server.api.request(path).method("PATCH", BodyPublishers.ofString(body))));
    }

    private JsonNode post(int status, String path, String body) throws IOException, InterruptedException {
        return InsideServer.answer(status, server.api.post(path, body));
    }

    private static String text(JsonNode node, String name) {
        return node.get(name).stringValue();
    }

    private static String id(String sandbox) {
        return sandbox.substring(sandbox.lastIndexOf('/') + 1);
    }

    private static String code(JsonNode answer) {
        return answer.at("/error/code").stringValue();
    }

    @Test
    void a_sandbox_says_what_was_agreed_on_its_life() throws Exception {
        JsonNode plain = fits("Sandbox", post(201, "/v1/sandboxes", "{}"));
        assertThat(plain.get("name").isNull()).isTrue();
        assertThat(plain.get("lifetime_seconds").isNull()).isTrue();
        assertThat(plain.get("expires_at").isNull()).isTrue();
        assertThat(plain.get("forked_from").isNull()).isTrue();
        assertThat(text(plain, "on_timeout")).isEqualTo("pause");
        assertThat(plain.get("auto_resume").booleanValue()).isTrue();
        JsonNode agreed = fits("Sandbox", post(201, "/v1/sandboxes", """
                {"name": "work", "lifetime_seconds": 600, "idle_timeout_seconds": 0, "on_timeout": "kill",
                 "auto_resume": false}"""));
        assertThat(text(agreed, "name")).isEqualTo("work");
        assertThat(agreed.get("lifetime_seconds").longValue()).isEqualTo(600);
        assertThat(agreed.get("idle_timeout_seconds").longValue()).isZero();
        assertThat(text(agreed, "on_timeout")).isEqualTo("kill");
        assertThat(agreed.get("auto_resume").booleanValue()).isFalse();
        assertThat(agreed.get("expires_at").isString()).isTrue();
        assertThat(server.get(200, "/v1/sandboxes/" + text(agreed, "sandbox_id")))
                .isEqualTo(agreed);
    }

    @Test
    void a_name_is_that_of_one_live_sandbox_and_can_be_asked_for() throws Exception {
        JsonNode first = post(201, "/v1/sandboxes", "{\"name\": \"work\"}");
        assertThat(code(post(409, "/v1/sandboxes", "{\"name\": \"work\"}"))).isEqualTo("conflict");
        JsonNode got = fits("Sandbox", post(200, "/v1/sandboxes", "{\"name\": \"work\", \"if_exists\": \"get\"}"));
        assertThat(text(got, "sandbox_id")).isEqualTo(text(first, "sandbox_id"));
        assertThat(server.get(200, "/v1/sandboxes?name=work").get("items")).hasSize(1);
        assertThat(server.get(200, "/v1/sandboxes?name=other").get("items")).isEmpty();
        server.delete(200, "/v1/sandboxes/" + text(first, "sandbox_id"));
        JsonNode second = post(201, "/v1/sandboxes", "{\"name\": \"work\", \"if_exists\": \"get\"}");
        assertThat(text(second, "sandbox_id")).isNotEqualTo(text(first, "sandbox_id"));
        assertThat(server.get(200, "/v1/sandboxes?name=work&state=running").get("items"))
                .hasSize(1);
    }

    @Test
    void what_cannot_be_meant_is_refused_and_says_what_is_wrong() throws Exception {
        String sandbox = server.sandbox();
        for (String[] wrong : new String[][] {
            {"/v1/sandboxes", "{\"name\": \"Work\"}", "name"},
            {"/v1/sandboxes", "{\"name\": \"sb-exec-x\"}", "name"},
            {"/v1/sandboxes", "{\"if_exists\": \"get\"}", "if_exists"},
            {"/v1/sandboxes", "{\"name\": \"a\", \"if_exists\": \"take\"}", "expected: fail, get"},
            {"/v1/sandboxes", "{\"lifetime_seconds\": 0}", "lifetime_seconds"},
            {"/v1/sandboxes", "{\"lifetime_seconds\": 1.5}", "lifetime_seconds"},
            {"/v1/sandboxes", "{\"lifetime_seconds\": 1e12}", "lifetime_seconds"},
            {"/v1/sandboxes", "{\"lifetime_seconds\": \"1h\"}", "lifetime_seconds"},
            {"/v1/sandboxes", "{\"idle_timeout_seconds\": -1}", "idle_timeout_seconds"},
            {"/v1/sandboxes", "{\"on_timeout\": \"sleep\"}", "expected: kill, pause"},
            {"/v1/sandboxes", "{\"auto_resume\": \"yes\"}", "auto_resume"},
            {"/v1/sandboxes", "{\"snapshot\": \"base\"}", "snapshot"},
            {sandbox + ":pause", "{\"force\": true}", "force"},
            {sandbox + ":pause", "{\"keep\": \"nothing\"}", "expected: memory, files"},
            {sandbox + ":resume", "{\"seconds\": 1}", "seconds"},
            {sandbox + ":extend", "{}", "seconds"},
            {sandbox + ":extend", "{\"seconds\": 0}", "seconds"},
        }) {
            JsonNode answer = post(400, wrong[0], wrong[1]);
            assertThat(code(answer)).as(wrong[1]).isEqualTo("invalid_request");
            assertThat(answer.at("/error/message").stringValue()).as(wrong[1]).contains(wrong[2]);
        }
        assertThat(text(server.get(200, sandbox), "state")).isEqualTo("running");
    }

    @Test
    void a_paused_sandbox_is_resumed_by_hand_and_by_use() throws Exception {
        String sandbox = server.sandbox();
        JsonNode paused = fits("Sandbox", post(200, sandbox + ":pause", ""));
        assertThat(text(paused, "state")).isEqualTo("paused");
        assertThat(paused.get("paused_at").isString()).isTrue();
        assertThat(text(post(200, sandbox + ":pause", "{}"), "state")).isEqualTo("paused");
        assertThat(server.get(200, "/v1/sandboxes?state=paused").get("items")).hasSize(1);
        JsonNode resumed = fits("Sandbox", post(200, sandbox + ":resume", "{\"lifetime_seconds\": 60}"));
        assertThat(text(resumed, "state")).isEqualTo("running");
        assertThat(resumed.get("paused_at").isNull()).isTrue();
        assertThat(resumed.get("lifetime_seconds").longValue()).isEqualTo(60);
        post(200, sandbox + ":pause", "");
        server.get(200, sandbox + "/ps");
        assertThat(text(server.get(200, sandbox), "state")).isEqualTo("running");
        JsonNode runs = fits("RunList", server.get(200, sandbox + "/runs")).get("items");
        assertThat(runs).hasSize(3);
        assertThat(runs.valueStream().map(run -> text(run, "how"))).containsExactly("start", "resume", "resume");
        assertThat(text(runs.get(0), "end_reason")).isEqualTo("paused");
        assertThat(runs.get(2).get("ended_at").isNull()).isTrue();
        assertThat(text(server.get(200, sandbox), "run_id")).isEqualTo(text(runs.get(2), "run_id"));
    }

    @Test
    void a_sandbox_that_is_paused_with_its_files_alone_says_so_and_starts_anew() throws Exception {
        String sandbox = server.sandbox();
        JsonNode paused = fits("Sandbox", post(200, sandbox + ":pause", "{\"keep\": \"files\"}"));
        assertThat(text(paused, "state")).isEqualTo("paused");
        JsonNode runs = server.get(200, sandbox + "/runs").get("items");
        assertThat(text(runs.get(0), "end_reason")).isEqualTo("paused");
        assertThat(text(runs.get(0), "end_detail")).isEqualTo("Its files alone were kept.");
        assertThat(text(post(200, sandbox + ":resume", ""), "state")).isEqualTo("running");
    }

    @Test
    void without_auto_resume_use_is_refused_and_says_how_to_resume() throws Exception {
        String sandbox = "/v1/sandboxes/" + text(post(201, "/v1/sandboxes", "{\"auto_resume\": false}"), "sandbox_id");
        post(200, sandbox + ":pause", "");
        JsonNode refused = server.get(409, sandbox + "/ps");
        assertThat(code(refused)).isEqualTo("sandbox_paused");
        assertThat(refused.at("/error/remediation").stringValue()).contains(":resume");
        fits("Sandbox", patch(200, sandbox, "{\"auto_resume\": true, \"name\": \"awake\"}"));
        server.get(200, sandbox + "/ps");
        assertThat(text(server.get(200, sandbox), "name")).isEqualTo("awake");
    }

    @Test
    void the_lifetime_is_set_anew_longer_shorter_and_none() throws Exception {
        String sandbox = server.sandbox();
        JsonNode bound = fits("Sandbox", post(200, sandbox + ":extend", "{\"seconds\": 3600}"));
        assertThat(bound.get("expires_at").isString()).isTrue();
        JsonNode shorter = post(200, sandbox + ":extend", "{\"seconds\": 60}");
        assertThat(text(shorter, "expires_at")).isLessThan(text(bound, "expires_at"));
        assertThat(post(200, sandbox + ":extend", "{\"seconds\": null}")
                        .get("expires_at")
                        .isNull())
                .isTrue();
        assertThat(code(patch(400, sandbox, "{\"lifetime_seconds\": 60}"))).isEqualTo("invalid_request");
    }

    @Test
    void code_exec_in_a_paused_sandbox_resumes_it() throws Exception {
        String sandbox = server.sandbox();
        post(200, sandbox + ":pause", "");
        post(200, "/v1/code_exec", Json.text(Map.of("code", "1", "sandbox_id", id(sandbox))));
        assertThat(text(server.get(200, sandbox), "state")).isEqualTo("running");
    }

    @Test
    void an_ended_sandbox_has_its_runs_and_takes_no_steps() throws Exception {
        String sandbox = server.sandbox();
        post(200, sandbox + ":pause", "");
        assertThat(text(fits("Sandbox", server.delete(200, sandbox)), "end_reason"))
                .isEqualTo("deleted");
        for (String step : List.of(":pause", ":resume")) {
            assertThat(code(post(410, sandbox + step, ""))).as(step).isEqualTo("sandbox_ended");
        }
        assertThat(fits("RunList", server.get(200, sandbox + "/runs")).get("items"))
                .hasSize(1);
    }
}
