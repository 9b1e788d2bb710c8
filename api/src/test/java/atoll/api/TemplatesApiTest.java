package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.testing.Eventually;
import atoll.http.Json;
import java.io.IOException;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

/** Templates, builds, images and registries by HTTP, over the real core and a node in memory. */
class TemplatesApiTest {
    private static final String FULL = """
            {"id": "full", "name": "Full", "description": "All of it", "image": "atoll/python",
             "packages": {"apt": ["curl"], "pip": ["six"], "npm": [], "go": []},
             "files": [{"path": "/a", "content": "hello", "mode": "0600", "owner": "user"},
                       {"path": "/b", "content_base64": "AAE="}],
             "commands": ["echo 1"], "env": {"A": "1"}, "user": "user", "workdir": "/srv",
             "default_language": "python",
             "limits": {"memory_bytes": 536870912, "cpu": 0.25}, "timeout_seconds": 1.5,
             "lifetime": {"default_seconds": 60, "max_seconds": 600}, "idle_timeout_seconds": 0,
             "on_timeout": "kill", "auto_resume": false, "pool": {"depth": 0, "max_depth": 2}, "network": "none",
             "ports": [{"port": 80, "name": "web"}], "runtime": "gvisor", "labels": {"team": "x"}}""";

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

    private JsonNode send(int status, String method, String path, String body)
            throws IOException, InterruptedException {
        HttpRequest.Builder request = server.api.request(path).method(method, BodyPublishers.ofString(body));
        return InsideServer.answer(status, server.api.send(request));
    }

    private static String text(JsonNode node, String name) {
        return node.get(name).stringValue();
    }

    private JsonNode ended(JsonNode build) {
        String path = "/v1/templates/" + text(build, "template") + "/builds/" + text(build, "build_id");
        Eventually.until(
                () -> {
                    try {
                        return !server.get(200, path).get("ended_at").isNull();
                    } catch (IOException | InterruptedException e) {
                        throw new AssertionError(e);
                    }
                },
                () -> path);
        try {
            return fits("Build", server.get(200, path));
        } catch (IOException | InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void the_list_says_how_each_is_built_and_used() throws Exception {
        JsonNode list = fits("TemplateList", server.get(200, "/v1/templates"));
        assertThat(list.get("items")).hasSize(8);
        JsonNode first = list.get("items").get(0);
        assertThat(text(first, "id")).isEqualTo("typescript-bun");
        assertThat(first.get("default").booleanValue()).isTrue();
        assertThat(text(first, "build_state")).isEqualTo("ready");
        assertThat(first.get("executions").longValue()).isZero();
        assertThat(text(list.get("items").get(5), "build_state")).isEqualTo("none");
    }

    @Test
    void all_that_is_said_of_a_template_comes_back() throws Exception {
        JsonNode made = fits("Template", send(201, "POST", "/v1/templates", FULL));
        schemas.fits("CreateTemplateRequest", Json.parse(FULL.getBytes(StandardCharsets.UTF_8), FULL.length()));
        JsonNode definition = made.get("definition");
        JsonNode sent = Json.mapper().readTree(FULL);
        for (String name : List.of(
                "name",
                "image",
                "packages",
                "commands",
                "env",
                "user",
                "workdir",
                "default_language",
                "ports",
                "runtime",
                "labels",
                "on_timeout",
                "auto_resume",
                "network",
                "lifetime",
                "pool")) {
            assertThat(definition.get(name).toString())
                    .as(name)
                    .isEqualTo(sent.get(name).toString());
        }
        assertThat(definition.at("/files/0/content_base64").stringValue()).isEqualTo("aGVsbG8=");
        assertThat(definition.at("/limits/cpu").doubleValue()).isEqualTo(0.25);
        assertThat(definition.get("timeout_seconds").doubleValue()).isEqualTo(1.5);
        assertThat(server.get(200, "/v1/templates/full").toString()).isEqualTo(made.toString());
        JsonNode dockerfile = fits("Dockerfile", server.get(200, "/v1/templates/full/dockerfile"));
        assertThat(text(dockerfile, "dockerfile")).startsWith("FROM atoll/python\nUSER root\n");
        String error = send(400, "POST", "/v1/templates", "{\"id\": \"x\", \"imge\": \"y\"}")
                .at("/error/message")
                .stringValue();
        assertThat(error).isEqualTo("unknown field \"imge\"");
        assertThat(send(409, "POST", "/v1/templates", FULL).at("/error/code").stringValue())
                .isEqualTo("conflict");
    }

    @Test
    void a_change_is_a_new_version_and_null_takes_back() throws Exception {
        send(201, "POST", "/v1/templates", FULL);
        schemas.fits("UpdateTemplateRequest", Json.mapper().readTree("{\"env\": null, \"user\": null}"));
        JsonNode changed = fits(
                "Template",
                send(200, "PATCH", "/v1/templates/full", "{\"env\": null, \"lifetime\": null, \"name\": \"New\"}"));
        assertThat(changed.get("version").intValue()).isEqualTo(2);
        assertThat(changed.at("/definition/env")).isEmpty();
        assertThat(changed.at("/definition/lifetime/max_seconds").isNull()).isTrue();
        assertThat(changed.at("/definition/idle_timeout_seconds").longValue()).isZero();
        assertThat(changed.at("/definition/workdir").stringValue()).isEqualTo("/srv");
        JsonNode versions = fits("TemplateVersionList", server.get(200, "/v1/templates/full/versions"));
        assertThat(versions.get("items")).hasSize(2);
        assertThat(text(server.get(200, "/v1/templates/full?version=1"), "name"))
                .isEqualTo("Full");
        assertThat(server.get(404, "/v1/templates/full?version=3")
                        .at("/error/code")
                        .stringValue())
                .isEqualTo("template_not_found");
    }

    @Test
    void a_build_is_begun_followed_and_listed() throws Exception {
        send(201, "POST", "/v1/templates", "{\"id\": \"mine\", \"dockerfile\": \"FROM atoll/python\\nRUN say hi\"}");
        JsonNode begun = fits("Build", send(202, "POST", "/v1/templates/mine:build", "{\"no_cache\": true}"));
        assertThat(begun.get("no_cache").booleanValue()).isTrue();
        assertThat(text(ended(begun), "state")).isEqualTo("ready");
        fits("BuildList", server.get(200, "/v1/templates/mine/builds"));
        String log = "/v1/templates/mine/builds/" + text(begun, "build_id") + "/log";
        HttpResponse<String> events = server.api.get(log + "?follow=1");
        assertThat(events.headers().firstValue("Content-Type")).contains("text/event-stream");
        List<String> lines =
                events.body().lines().filter(line -> !line.isEmpty()).toList();
        assertThat(lines)
                .containsSubsequence(
                        "event: step",
                        "data: {\"number\":2,\"total\":2,\"text\":\"RUN say hi\",\"cached\":false}",
                        "event: log",
                        "data: {\"text\":\"hi\\n\",\"stream\":\"stdout\"}",
                        "event: done");
        schemas.fits("Build", Json.mapper().readTree(lines.getLast().substring("data: ".length())));
        assertThat(server.api.get(log + "?format=text").body())
                .isEqualTo("[1/2] FROM atoll/python\n[2/2] RUN say hi\nhi\nready\n");
        assertThat(server.get(404, "/v1/templates/mine/builds/bld-x")
                        .at("/error/code")
                        .stringValue())
                .isEqualTo("build_not_found");
    }

    @Test
    void a_build_is_cancelled_and_a_failed_one_says_why() throws Exception {
        send(201, "POST", "/v1/templates", "{\"id\": \"mine\", \"dockerfile\": \"FROM atoll/python\\nRUN wait x\"}");
        JsonNode begun = send(202, "POST", "/v1/templates/mine:build", "");
        String path = "/v1/templates/mine/builds/" + text(begun, "build_id") + ":cancel";
        assertThat(text(fits("Build", send(200, "POST", path, "")), "state")).isEqualTo("cancelled");
        JsonNode changed = send(
                200,
                "PATCH",
                "/v1/templates/mine",
                "{\"dockerfile\": \"FROM atoll/python\\nRUN fail oops\", \"build\": true}");
        JsonNode failed = ended(fits("Template", changed).get("build"));
        assertThat(failed.at("/failure/code").stringValue()).isEqualTo("build_step_failed");
        assertThat(failed.at("/failure/last_lines").stringValue()).isEqualTo("oops");
        JsonNode refused = server.post(409, "/v1/sandboxes", Map.of("template", "mine"));
        assertThat(refused.at("/error/code").stringValue()).isEqualTo("template_build_failed");
        fits("Error", refused);
    }

    @Test
    void a_context_is_uploaded_and_a_sandbox_saved() throws Exception {
        send(201, "POST", "/v1/templates", "{\"id\": \"mine\", \"dockerfile\": \"FROM atoll/python\\nCOPY a /a\"}");
        JsonNode changed = fits("Template", send(200, "PUT", "/v1/templates/mine/context", "a tar"));
        assertThat(changed.at("/definition/context/bytes").intValue()).isEqualTo(5);
        String sandbox =
                "/v1/sandboxes/" + text(server.post(201, "/v1/sandboxes", Map.of("template", "mine")), "sandbox_id");
        assertThat(server.core.node.making().bodyOf("mine@2")).isEqualTo("a tar".getBytes(StandardCharsets.UTF_8));
        JsonNode saved = fits("Template", send(201, "POST", sandbox + ":save_template", "{\"id\": \"saved\"}"));
        assertThat(text(saved, "build_state")).isEqualTo("ready");
    }

    @Test
    void one_is_duplicated_made_the_default_and_deleted() throws Exception {
        JsonNode twin = fits("Template", send(201, "POST", "/v1/templates/python:duplicate", "{\"id\": \"twin\"}"));
        assertThat(twin.get("built_in").booleanValue()).isFalse();
        assertThat(fits("Template", send(200, "POST", "/v1/templates/twin:set_default", ""))
                        .get("default")
                        .booleanValue())
                .isTrue();
        assertThat(text(server.post(201, "/v1/sandboxes", Map.of()), "template"))
                .isEqualTo("twin");
        assertThat(server.delete(409, "/v1/templates/twin").at("/error/code").stringValue())
                .isEqualTo("conflict");
        server.delete(204, "/v1/templates/typescript-bun");
        server.get(404, "/v1/templates/typescript-bun");
    }

    @Test
    void images_come_go_and_are_listed() throws Exception {
        JsonNode pulled = fits("Image", send(201, "POST", "/v1/images:pull", "{\"reference\": \"debian:12\"}"));
        JsonNode imported = fits("Image", send(201, "POST", "/v1/images:import?name=mine", "a tar"));
        assertThat(text(imported, "origin")).isEqualTo("archive");
        JsonNode list = fits("ImageList", server.get(200, "/v1/images"));
        assertThat(list.get("items")).hasSize(4);
        fits("ImageDeleted", server.delete(200, "/v1/images/" + text(pulled, "digest")));
        assertThat(fits("ImagesPruned", send(200, "POST", "/v1/images:prune", ""))
                        .get("digests"))
                .hasSize(1);
        assertThat(send(404, "POST", "/v1/images:pull", "{\"reference\": \"empty.example/x\"}")
                        .at("/error/code")
                        .stringValue())
                .isEqualTo("image_not_found");
    }

    @Test
    void registries_are_kept_and_their_passwords_never_told() throws Exception {
        JsonNode kept = fits(
                "Registry",
                send(
                        200,
                        "PUT",
                        "/v1/registries/registry.example%3A5000",
                        "{\"username\": \"me\", \"password\": \"s3\"}"));
        assertThat(text(kept, "host")).isEqualTo("registry.example:5000");
        JsonNode list = fits("RegistryList", server.get(200, "/v1/registries"));
        assertThat(list.toString()).contains("me").doesNotContain("s3");
        server.delete(204, "/v1/registries/registry.example%3A5000");
        assertThat(server.get(200, "/v1/registries").get("items")).isEmpty();
    }
}
