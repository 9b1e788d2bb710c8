package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.http.Json;
import atoll.http.Route;
import com.networknt.schema.InputFormat;
import com.networknt.schema.Schema;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

/** Keeps openapi.json true: every route is in it and nothing else, and real answers fit their schemas. */
class OpenApiTest {
    private ApiServer api;
    private JsonNode document;

    @BeforeEach
    void start() throws Exception {
        api = new ApiServer();
        document = ApiServer.json(api.get("/openapi.json"));
    }

    @AfterEach
    void stop() {
        api.close();
    }

    @Test
    void every_route_is_described_and_every_description_is_a_route() {
        var described = new TreeSet<String>();
        for (Map.Entry<String, JsonNode> path : document.get("paths").properties()) {
            path.getValue()
                    .propertyNames()
                    .forEach(method -> described.add(method.toUpperCase(Locale.ROOT) + " " + path.getKey()));
        }
        var routes = new TreeSet<String>();
        api.routes.routes().forEach(route -> routes.add(route.method() + " " + route.pattern()));
        assertThat(described).isEqualTo(routes);
    }

    @Test
    void a_route_asks_for_a_key_exactly_where_the_document_says_so() {
        for (Route route : api.routes.routes()) {
            boolean open = operation(route).path("security").isArray();
            assertThat(route.guarded())
                    .as(route.method() + " " + route.pattern())
                    .isEqualTo(!open);
        }
    }

    @Test
    void path_parameters_are_described() {
        for (Route route : api.routes.routes()) {
            var described = new TreeSet<String>();
            for (JsonNode parameter : operation(route).path("parameters")) {
                if (parameter.get("in").stringValue().equals("path")) {
                    described.add("{" + parameter.get("name").stringValue() + "}");
                }
            }
            assertThat(described).allMatch(route.pattern()::contains);
            assertThat(route.pattern().chars().filter(c -> c == '{').count()).isEqualTo(described.size());
        }
    }

    @Test
    void operation_ids_are_unique() {
        Stream<String> ids = api.routes.routes().stream()
                .map(route -> operation(route).get("operationId").stringValue());
        assertThat(ids).doesNotHaveDuplicates();
    }

    @Test
    void real_answers_fit_their_schemas() throws Exception {
        JsonNode ran = api.exec(Map.of("code", "print(2)"));
        var names = new TreeMap<String, String>();
        names.put("{sandbox_id}", ran.get("sandbox_id").stringValue());
        names.put("{execution_id}", ran.get("execution_id").stringValue());
        names.put("{template_id}", "python");
        names.put("{key_id}", FakeAtoll.CALLER.key().toString());
        for (Route route : api.routes.routes()) {
            JsonNode responses = operation(route).get("responses");
            String status = responses.has("201") ? "201" : "200";
            JsonNode schema = responses.at("/" + status + "/content/application~1json/schema");
            if (schema.isMissingNode() || route.pattern().equals("/mcp") || isInside(route)) {
                continue;
            }
            String path = route.pattern();
            for (Map.Entry<String, String> name : names.entrySet()) {
                path = path.replace(name.getKey(), name.getValue());
            }
            String body = route.pattern().equals("/v1/code_exec") ? "{\"code\":\"1\"}" : "{}";
            HttpResponse<String> response = api.send(
                    route.method().equals("GET")
                            ? api.request(path)
                            : api.request(path).method(route.method(), BodyPublishers.ofString(body)));
            assertThat(response.statusCode()).as(path).isEqualTo(Integer.parseInt(status));
            assertFits(response.body(), schema, route.pattern());
        }
    }

    /** Those that are about the life of a sandbox and what is inside it are tested over the real core, each with its feature. */
    private static boolean isInside(Route route) {
        boolean changesTemplates =
                route.pattern().startsWith("/v1/templates") && !route.method().equals("GET");
        boolean changesKeys =
                route.pattern().startsWith("/v1/keys") && !route.method().equals("GET");
        return changesTemplates
                || changesKeys
                || Stream.of(
                                "/v1/sandboxes/{sandbox_id}/",
                                "/v1/sandboxes/{sandbox_id}:",
                                "/v1/snapshots",
                                "/v1/templates/{template_id}/",
                                "/v1/images",
                                "/v1/registries")
                        .anyMatch(route.pattern()::startsWith);
    }

    @Test
    void a_record_has_the_fields_of_the_reply_and_null_while_it_runs() throws Exception {
        JsonNode reply = api.exec(Map.of("code", "print(2)"));
        JsonNode record = ApiServer.json(
                api.get("/v1/executions/" + reply.get("execution_id").stringValue()));
        for (Map.Entry<String, JsonNode> field : reply.properties()) {
            assertThat(record.get(field.getKey())).as(field.getKey()).isEqualTo(field.getValue());
        }
        assertThat(record.get("ended_at").isString()).isTrue();
        api.atoll.program("wait", terminal -> terminal.awaitInterrupt());
        try (var stream = api.open(api.request("/v1/code_exec")
                        .POST(BodyPublishers.ofString("{\"code\":\"wait\",\"stream\":true}")))
                .body()) {
            assertThat(stream.read()).isPositive();
            HttpResponse<String> list = api.get("/v1/executions?state=running");
            assertFits(list.body(), named("ExecutionList"), "list");
            JsonNode running = ApiServer.json(list).get("items").get(0);
            reply.propertyNames()
                    .forEach(name -> assertThat(running.has(name)).as(name).isTrue());
            assertThat(running.get("exit_reason").isNull()).isTrue();
            api.post("/v1/executions/" + running.get("execution_id").stringValue() + ":interrupt", "{}");
        }
    }

    @Test
    void errors_events_and_an_unready_health_fit_their_schemas() throws Exception {
        assertFits(api.get("/v1/sandboxes/none").body(), named("Error"), "error");
        assertFits(api.post("/v1/code_exec", "{").body(), named("Error"), "error");
        for (ApiServer.Event event : api.stream("print(2)")) {
            String schema = switch (event.name()) {
                case "start" -> "StartEvent";
                case "output" -> "OutputEvent";
                case "done" -> "Outcome";
                default -> throw new AssertionError(event);
            };
            assertFits(Json.text(event.data()), named(schema), event.name());
        }
        api.atoll.nodeConnected = false;
        HttpResponse<String> health = api.get("/healthz");
        assertThat(health.statusCode()).isEqualTo(503);
        assertThat(health.body()).contains("connection refused");
        assertFits(health.body(), named("Health"), "health");
    }

    @Test
    void the_request_schema_takes_what_the_server_takes_and_no_more() {
        assertFits(
                "{\"tool\":\"code_exec\",\"code\":\"1\",\"env\":{\"A\":\"b\"},\"stream\":false}",
                named("CodeExecRequest"),
                "request");
        assertThat(schema(named("CodeExecRequest")).validate("{\"code\":\"1\",\"sandboxid\":\"x\"}", InputFormat.JSON))
                .isNotEmpty();
        assertThat(schema(named("CodeExecRequest")).validate("{}", InputFormat.JSON))
                .isNotEmpty();
    }

    private JsonNode operation(Route route) {
        JsonNode operation =
                document.get("paths").path(route.pattern()).path(route.method().toLowerCase(Locale.ROOT));
        assertThat(operation.isObject())
                .as("in openapi.json: %s %s", route.method(), route.pattern())
                .isTrue();
        return operation;
    }

    private static JsonNode named(String name) {
        return OpenApiSchemas.named(name);
    }

    private void assertFits(String body, JsonNode schema, String what) {
        assertThat(schema(schema).validate(body, InputFormat.JSON))
                .as("%s: %s", what, body)
                .isEmpty();
    }

    private Schema schema(JsonNode schema) {
        return new OpenApiSchemas(document).schema(schema);
    }
}
