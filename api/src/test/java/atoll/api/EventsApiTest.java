package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

/** What happened, by HTTP, over the real core and a node in memory. */
class EventsApiTest {
    private InsideServer server;

    @BeforeEach
    void start() throws Exception {
        server = new InsideServer();
    }

    @AfterEach
    void stop() {
        server.close();
    }

    private static String id(String sandbox) {
        return sandbox.substring(sandbox.lastIndexOf('/') + 1);
    }

    private static List<String> kinds(JsonNode list) {
        return list.get("items")
                .valueStream()
                .map(event -> event.get("kind").stringValue())
                .toList();
    }

    private String lived() throws Exception {
        String sandbox = server.sandbox();
        server.post(200, sandbox + ":pause", Map.of());
        server.post(200, sandbox + ":resume", Map.of());
        server.delete(200, sandbox);
        return sandbox;
    }

    @Test
    void a_sandbox_has_a_timeline_also_after_its_end() throws Exception {
        String sandbox = lived();
        JsonNode events = server.get(200, sandbox + "/events?order=oldest");
        new OpenApiSchemas(server.get(200, "/openapi.json")).fits("EventList", events);
        assertThat(kinds(events))
                .containsExactly("sandbox.started", "sandbox.paused", "sandbox.resumed", "sandbox.ended");
        assertThat(events.at("/items/3/detail").stringValue()).isEqualTo("deleted");
        assertThat(events.at("/items/0/subject").stringValue()).isEqualTo(id(sandbox));
    }

    @Test
    void events_of_all_sandboxes_are_listed_newest_first_page_by_page() throws Exception {
        String first = lived();
        String second = server.sandbox();
        JsonNode page = server.get(200, "/v1/events?limit=2");
        assertThat(kinds(page)).containsExactly("sandbox.started", "sandbox.ended");
        assertThat(page.at("/items/0/subject").stringValue()).isEqualTo(id(second));
        JsonNode rest = server.get(200, "/v1/events?cursor=" + page.get("next").stringValue());
        assertThat(kinds(rest)).containsExactly("sandbox.resumed", "sandbox.paused", "sandbox.started");
        assertThat(rest.get("next").isNull()).isTrue();
        assertThat(kinds(server.get(
                        200, "/v1/events?kind=sandbox.paused,sandbox.ended&order=oldest&subject=" + id(first))))
                .containsExactly("sandbox.paused", "sandbox.ended");
    }

    @Test
    void what_follows_an_event_is_found_by_its_cursor() throws Exception {
        String sandbox = server.sandbox();
        String seen = server.get(200, "/v1/events").at("/items/0/cursor").stringValue();
        assertThat(kinds(server.get(200, "/v1/events?order=oldest&cursor=" + seen)))
                .isEmpty();
        server.delete(200, sandbox);
        assertThat(kinds(server.get(200, "/v1/events?order=oldest&cursor=" + seen)))
                .containsExactly("sandbox.ended");
    }

    @Test
    void a_wrong_cursor_order_or_sandbox_is_refused() throws Exception {
        assertThat(server.get(400, "/v1/events?cursor=x").at("/error/message").stringValue())
                .contains("cursor: \"x\"");
        assertThat(server.get(400, "/v1/events?order=up").at("/error/message").stringValue())
                .contains("newest, oldest");
        server.get(404, "/v1/sandboxes/sb-00000000000000000000000000/events");
    }
}
