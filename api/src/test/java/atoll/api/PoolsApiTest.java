package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

class PoolsApiTest {
    private ApiServer api;

    @BeforeEach
    void start() throws Exception {
        api = new ApiServer();
    }

    @AfterEach
    void stop() {
        api.close();
    }

    @Test
    void a_pool_says_what_it_holds_and_what_it_takes() throws Exception {
        JsonNode pool = ApiServer.json(api.get("/v1/pools")).at("/items/0");
        assertThat(pool.get("template").stringValue()).isEqualTo("python");
        assertThat(pool.get("depth").intValue()).isEqualTo(4);
        assertThat(pool.get("ready").intValue()).isEqualTo(3);
        assertThat(pool.get("starting").intValue()).isEqualTo(1);
        assertThat(pool.get("prepared").intValue()).isEqualTo(2);
        assertThat(pool.at("/golden/snapshot_id").stringValue()).startsWith("snap-");
        assertThat(pool.at("/golden/size_bytes").longValue()).isEqualTo(5_000_000);
        assertThat(pool.get("hits").longValue()).isEqualTo(10);
        assertThat(pool.at("/misses/empty").longValue()).isEqualTo(2);
        assertThat(pool.at("/starts/restored").longValue()).isEqualTo(9);
        assertThat(pool.at("/restore_failures/internal").longValue()).isEqualTo(1);
        assertThat(pool.get("memory_bytes").longValue()).isEqualTo(95_000_000);
        assertThat(pool.get("last_failure").isNull()).isTrue();
    }

    @Test
    void pools_are_in_the_metrics() throws Exception {
        assertThat(api.get("/metrics").body().lines())
                .contains(
                        "atoll_pool_target{template=\"python\"} 4",
                        "atoll_pool_prepared{template=\"python\"} 2",
                        "atoll_pool_memory_bytes{template=\"python\"} 95000000",
                        "atoll_pool_golden_bytes{template=\"python\"} 5000000",
                        "atoll_pool_misses_total{template=\"python\",reason=\"empty\"} 2",
                        "atoll_pool_misses_total{template=\"python\",reason=\"snapshot\"} 0",
                        "atoll_pool_starts_total{template=\"python\",how=\"restored\"} 9",
                        "atoll_pool_restore_failures_total{template=\"python\",code=\"internal\"} 1");
    }

    @Test
    void the_life_of_sandboxes_is_in_the_metrics() throws Exception {
        String sandbox = "/v1/sandboxes/"
                + ApiServer.json(api.post("/v1/sandboxes", "{}"))
                        .get("sandbox_id")
                        .stringValue();
        assertThat(api.post(sandbox + ":pause", "").statusCode()).isEqualTo(200);
        api.metrics.lifeStep("pause", true, Duration.ofMillis(120));
        api.metrics.lifeStep("resume", false, Duration.ofMillis(80));
        assertThat(api.get("/metrics").body().lines())
                .contains(
                        "atoll_sandboxes_live 1",
                        "atoll_sandboxes_paused 1",
                        "atoll_life_step_seconds_count{step=\"pause\",succeeded=\"true\"} 1",
                        "atoll_life_step_seconds_count{step=\"resume\",succeeded=\"false\"} 1");
    }
}
