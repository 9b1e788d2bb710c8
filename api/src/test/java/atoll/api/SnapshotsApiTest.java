package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.testing.CoreFixture;
import atoll.http.Json;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

/** Forks, snapshots and their files by HTTP, over the real core and a node in memory. */
class SnapshotsApiTest {
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
    void forks_are_sandboxes_of_their_own_and_made_once_for_each_key() throws Exception {
        String sandbox = server.sandbox();
        String body = "{\"count\": 2, \"env\": {\"A\": \"1\"}, \"labels\": {\"try\": \"x\"}}";
        var call = server.api.request(sandbox + ":fork").header("Idempotency-Key", "once");
        JsonNode made = fits(
                "SandboxList", InsideServer.answer(201, server.api.send(call.POST(BodyPublishers.ofString(body)))));
        assertThat(made.get("items")).hasSize(2);
        for (JsonNode copy : made.get("items")) {
            assertThat(copy.at("/forked_from/sandbox_id").stringValue()).isEqualTo(id(sandbox));
            assertThat(text(copy, "state")).isEqualTo("running");
            assertThat(copy.at("/labels/try").stringValue()).isEqualTo("x");
        }
        JsonNode again = InsideServer.answer(201, server.api.send(call.POST(BodyPublishers.ofString(body))));
        assertThat(ids(again)).isEqualTo(ids(made));
        assertThat(post(201, sandbox + ":fork", "").get("items")).hasSize(1);
        assertThat(server.get(200, "/v1/sandboxes?state=running").get("items")).hasSize(4);
    }

    private static Set<String> ids(JsonNode list) {
        var ids = new HashSet<String>();
        list.get("items").forEach(item -> ids.add(text(item, "sandbox_id")));
        return ids;
    }

    @Test
    void snapshots_are_made_found_changed_and_removed() throws Exception {
        String sandbox = server.sandbox();
        JsonNode made = fits("Snapshot", post(201, sandbox + "/snapshots", """
                {"name": "base", "labels": {"a": "b"}, "expires_in_seconds": 3600}"""));
        assertThat(text(made, "kind")).isEqualTo("memory");
        assertThat(text(made, "state")).isEqualTo("ready");
        assertThat(text(made, "sandbox_id")).isEqualTo(id(sandbox));
        String snapshot = "/v1/snapshots/" + text(made, "snapshot_id");
        assertThat(server.get(200, snapshot)).isEqualTo(made);
        post(201, sandbox + "/snapshots", "{\"kind\": \"files\"}");
        assertThat(fits("SnapshotList", server.get(200, "/v1/snapshots")).get("items"))
                .hasSize(2);
        for (String query : List.of("name=base", "kind=memory", "label.a=b", "kind=memory&sandbox_id=" + id(sandbox))) {
            assertThat(server.get(200, "/v1/snapshots?" + query).get("items"))
                    .as(query)
                    .containsExactly(made);
        }
        JsonNode changed = fits("Snapshot", patch(200, snapshot, """
                {"name": "other", "labels": {"a": null, "c": "d"}, "expires_in_seconds": null}"""));
        assertThat(text(changed, "name")).isEqualTo("other");
        assertThat(changed.get("labels")).isEqualTo(Json.mapper().readTree("{\"c\": \"d\"}"));
        assertThat(changed.get("expires_at").isNull()).isTrue();
        server.delete(204, snapshot);
        assertThat(code(server.get(404, snapshot))).isEqualTo("snapshot_not_found");
    }

    @Test
    void a_sandbox_begins_with_a_snapshot_and_goes_back_to_one() throws Exception {
        String sandbox = server.sandbox();
        String snapshot = text(post(201, sandbox + "/snapshots", ""), "snapshot_id");
        JsonNode copy = fits("Sandbox", post(201, "/v1/sandboxes", "{\"snapshot\": \"" + snapshot + "\"}"));
        assertThat(copy.at("/forked_from/snapshot_id").stringValue()).isEqualTo(snapshot);
        assertThat(copy.at("/forked_from/sandbox_id").stringValue()).isEqualTo(id(sandbox));
        String both = "{\"template\": \"python\", \"snapshot\": \"" + snapshot + "\"}";
        assertThat(code(post(400, "/v1/sandboxes", both))).isEqualTo("invalid_request");
        String to = "{\"snapshot_id\": \"" + snapshot + "\"}";
        assertThat(text(fits("Sandbox", post(200, sandbox + ":rollback", to)), "state"))
                .isEqualTo("running");
        JsonNode last = server.get(200, sandbox + "/runs").at("/items/1");
        assertThat(text(last, "how")).isEqualTo("rollback");
        assertThat(text(last, "snapshot_in")).isEqualTo(snapshot);
    }

    @Test
    void a_snapshot_goes_out_as_a_file_and_comes_in_again() throws Exception {
        String sandbox = server.sandbox();
        String snapshot = "/v1/snapshots/" + text(post(201, sandbox + "/snapshots", ""), "snapshot_id");
        HttpResponse<InputStream> answer = server.api.open(server.api.request(snapshot + "/file"));
        assertThat(answer.statusCode()).isEqualTo(200);
        assertThat(answer.headers().firstValue("Content-Type")).contains("application/octet-stream");
        assertThat(answer.headers().firstValue("Content-Length")).isEmpty();
        assertThat(answer.headers().firstValue("Content-Disposition").orElse(""))
                .contains(id(snapshot));
        byte[] file = answer.body().readAllBytes();
        assertThat(file).isNotEmpty();
        JsonNode imported = fits(
                "Snapshot",
                InsideServer.answer(
                        201,
                        server.api.send(server.api
                                .request("/v1/snapshots/file?name=again&label.from=there")
                                .POST(BodyPublishers.ofByteArray(file)))));
        assertThat(text(imported, "name")).isEqualTo("again");
        assertThat(imported.at("/labels/from").stringValue()).isEqualTo("there");
        assertThat(text(imported, "snapshot_id")).isNotEqualTo(id(snapshot));
        JsonNode copy = post(201, "/v1/sandboxes", "{\"snapshot\": \"" + text(imported, "snapshot_id") + "\"}");
        assertThat(text(copy, "state")).isEqualTo("running");
    }

    @Test
    void an_export_that_fails_before_its_first_byte_is_an_ordinary_error() throws Exception {
        String none = "/v1/snapshots/snap-" + "0".repeat(26) + "/file";
        HttpResponse<String> answer = server.api.get(none);
        assertThat(answer.headers().firstValue("Content-Type").orElse("")).startsWith("application/json");
        assertThat(code(InsideServer.answer(404, answer))).isEqualTo("snapshot_not_found");
    }

    @Test
    void a_file_that_is_no_snapshot_leaves_none() throws Exception {
        HttpResponse<String> refused =
                server.api.send(server.api.request("/v1/snapshots/file").POST(BodyPublishers.ofString("no snapshot")));
        assertThat(refused.statusCode()).as(refused.body()).isBetween(400, 499);
        assertThat(server.get(200, "/v1/snapshots").get("items")).isEmpty();
    }

    @Test
    void an_import_that_breaks_off_leaves_no_snapshot() throws Exception {
        String sandbox = server.sandbox();
        String made = text(post(201, sandbox + "/snapshots", ""), "snapshot_id");
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), server.api.port())) {
            OutputStream out = socket.getOutputStream();
            out.write(("POST /v1/snapshots/file HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + CoreFixture.KEY
                            + "\r\nContent-Length: 1000000\r\n\r\nhalf of it")
                    .getBytes(StandardCharsets.US_ASCII));
            out.flush();
            socket.shutdownOutput();
            // The server says something or closes; either way it is done with the call.
            socket.getInputStream().readAllBytes();
        }
        assertThat(server.get(200, "/v1/snapshots").get("items").valueStream().map(one -> text(one, "snapshot_id")))
                .containsExactly(made);
    }

    @Test
    void a_head_of_an_export_has_no_body() throws Exception {
        String sandbox = server.sandbox();
        String snapshot = text(post(201, sandbox + "/snapshots", ""), "snapshot_id");
        HttpResponse<String> answer = server.api.send(
                server.api.request("/v1/snapshots/" + snapshot + "/file").method("HEAD", BodyPublishers.noBody()));
        assertThat(answer.statusCode()).isEqualTo(200);
        assertThat(answer.body()).isEmpty();
    }

    @Test
    void what_cannot_be_meant_is_refused_and_says_what_is_wrong() throws Exception {
        String sandbox = server.sandbox();
        for (String[] wrong : new String[][] {
            {sandbox + ":fork", "{\"count\": 0}", "count"},
            {sandbox + ":fork", "{\"count\": 101}", "count"},
            {sandbox + ":fork", "{\"count\": 2, \"name\": \"two\"}", "name"},
            {sandbox + ":rollback", "{}", "snapshot_id"},
            {sandbox + "/snapshots", "{\"kind\": \"disk\"}", "expected: memory, files"},
            {sandbox + "/snapshots", "{\"expires_in_seconds\": 0}", "expires_in_seconds"},
        }) {
            JsonNode answer = post(400, wrong[0], wrong[1]);
            assertThat(code(answer)).as(wrong[1]).isEqualTo("invalid_request");
            assertThat(answer.at("/error/message").stringValue()).as(wrong[1]).contains(wrong[2]);
        }
        assertThat(server.get(200, "/v1/sandboxes").get("items")).hasSize(1);
    }

    @Test
    void of_an_ended_sandbox_nothing_is_made() throws Exception {
        String sandbox = server.sandbox();
        server.delete(200, sandbox);
        for (String step : List.of(":fork", "/snapshots")) {
            assertThat(code(post(410, sandbox + step, ""))).as(step).isEqualTo("sandbox_ended");
        }
    }
}
