package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import java.net.http.HttpResponse;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

/** API keys by HTTP, over the real core. */
class KeysApiTest {
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

    private int statusWith(JsonNode key, String path) throws Exception {
        HttpResponse<String> answer = server.api.send(server.api
                .request(path)
                .setHeader("Authorization", "Bearer " + key.get("key").stringValue()));
        return answer.statusCode();
    }

    @Test
    void a_key_is_made_shown_once_used_and_revoked() throws Exception {
        JsonNode made = server.post(201, "/v1/keys", Map.of("name", "ci", "scopes", List.of("read")));
        schemas.fits("CreatedKey", made);
        assertThat(statusWith(made, "/v1/sandboxes")).isEqualTo(200);
        String path = "/v1/keys/" + made.get("key_id").stringValue();
        JsonNode listed = server.get(200, "/v1/keys");
        schemas.fits("KeyList", listed);
        assertThat(listed.get("items").size()).isEqualTo(2);
        assertThat(listed.toString()).doesNotContain(made.get("key").stringValue());
        JsonNode one = server.get(200, path);
        schemas.fits("Key", one);
        assertThat(one.get("scopes").toString()).isEqualTo("[\"read\"]");
        assertThat(one.get("last_used_at").isString()).isTrue();
        server.delete(204, path);
        assertThat(statusWith(made, "/v1/sandboxes")).isEqualTo(401);
        server.get(404, path);
    }

    @Test
    void a_key_expires_at_a_time_to_come() throws Exception {
        JsonNode made = server.post(
                201,
                "/v1/keys",
                Map.of("name", "k", "scopes", List.of("execute", "read"), "expires_at", "2099-01-01T00:00:00+01:00"));
        assertThat(made.get("expires_at").stringValue()).isEqualTo("2098-12-31T23:00:00Z");
        for (String time : List.of("tomorrow", "1999-01-01T00:00:00Z", "+1000000-01-01T00:00:00Z")) {
            server.post(400, "/v1/keys", Map.of("name", "k", "scopes", List.of("read"), "expires_at", time));
        }
    }

    @Test
    void a_key_without_name_or_scope_is_refused() throws Exception {
        server.post(400, "/v1/keys", Map.of("scopes", List.of("read")));
        server.post(400, "/v1/keys", Map.of("name", "k"));
        assertThat(server.post(400, "/v1/keys", Map.of("name", "k", "scopes", List.of("all")))
                        .at("/error/message")
                        .stringValue())
                .contains("read, execute, admin");
    }

    @Test
    void a_key_that_is_not_admin_sees_no_keys() throws Exception {
        JsonNode made = server.post(201, "/v1/keys", Map.of("name", "k", "scopes", List.of("read", "execute")));
        assertThat(statusWith(made, "/v1/keys")).isEqualTo(403);
    }
}
