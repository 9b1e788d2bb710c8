package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

/** What is counted and measured, by HTTP, over the real core and a node in memory. */
class StatsApiTest {
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

    @Test
    void totals_follow_what_happens() throws Exception {
        JsonNode none = server.get(200, "/v1/stats");
        schemas.fits("Stats", none);
        assertThat(none.at("/cold_start/p50_ms").isNull()).isTrue();
        server.post(200, "/v1/code_exec", Map.of("code", "1"));
        server.delete(200, server.sandbox());
        JsonNode some = server.get(200, "/v1/stats");
        schemas.fits("Stats", some);
        assertThat(some.get("executions").longValue()).isEqualTo(1);
        assertThat(some.get("active_sessions").longValue()).isEqualTo(1);
        assertThat(some.at("/sandboxes/ended").longValue()).isEqualTo(1);
        assertThat(some.at("/cold_start/count").longValue()).isEqualTo(2);
        assertThat(some.at("/cold_start/p50_ms").doubleValue()).isPositive();
    }

    @Test
    void the_node_says_what_it_has() throws Exception {
        String sandbox = server.sandbox();
        server.post(200, sandbox + ":pause", Map.of());
        JsonNode node = server.get(200, "/v1/node");
        schemas.fits("Node", node);
        assertThat(node.get("connected").booleanValue()).isTrue();
        assertThat(node.at("/sandboxes/paused").intValue()).isEqualTo(1);
        assertThat(node.at("/memory/total_bytes").longValue()).isPositive();
        assertThat(node.at("/engine/runsc_version").stringValue()).isNotEmpty();
        assertThat(node.at("/server/started_at").isString()).isTrue();
    }

    @Test
    void a_pool_has_a_history_where_it_is_asked_for() throws Exception {
        server.post(200, "/v1/code_exec", Map.of("code", "1", "template", "python"));
        JsonNode none = server.get(200, "/v1/pools");
        schemas.fits("PoolList", none);
        assertThat(none.at("/items/0/history").isEmpty()).isTrue();
        JsonNode pools = server.get(200, "/v1/pools?minutes=60");
        schemas.fits("PoolList", pools);
        JsonNode python = pools.get("items")
                .valueStream()
                .filter(pool -> pool.get("template").stringValue().equals("python"))
                .findFirst()
                .orElseThrow();
        assertThat(python.at("/history/0/took/count").longValue()).isEqualTo(1);
        assertThat(python.get("hit_rate").isNumber()).isTrue();
        assertThat(python.at("/took/p99_ms").isNumber()).isTrue();
        server.get(400, "/v1/pools?minutes=181");
    }
}
