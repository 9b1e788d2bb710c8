package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.template.LimitBounds;
import atoll.core.template.Limits;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import org.junit.jupiter.api.Test;

class SettingsTest {
    @Test
    void the_defaults_are_these() {
        Settings settings = Settings.parse(Map.of());
        assertThat(settings).isEqualTo(Settings.DEFAULT);
        assertThat(settings.poolDepth()).isEqualTo(4);
        assertThat(settings.poolStarts()).isEqualTo(4);
        assertThat(settings.poolGrowth()).isEqualTo(new Settings.PoolGrowth(32, 4, 25));
        assertThat(settings.limits()).isEqualTo(new Limits(256L * 1024 * 1024, 500, 1024L * 1024 * 1024, 256, 4096));
        assertThat(settings.timeout()).isEqualTo(Duration.ofSeconds(30));
        assertThat(settings.maxTimeout()).isEqualTo(Duration.ofHours(24));
        assertThat(settings.nodePatience()).isEqualTo(Duration.ofSeconds(30));
        assertThat(settings.retention()).isEqualTo(Duration.ofDays(30));
        assertThat(settings.maxExecutions()).isEqualTo(1_000_000);
        assertThat(settings.lives())
                .isEqualTo(new Settings.Lives(
                        Optional.empty(),
                        Optional.empty(),
                        Optional.of(Duration.ofHours(1)),
                        Duration.ofDays(30),
                        Optional.empty()));
    }

    @Test
    void every_setting_can_be_set_by_its_name() {
        Settings settings = Settings.parse(Map.ofEntries(
                Map.entry("pool.depth", "1"),
                Map.entry("pool.depth.python", "7"),
                Map.entry("pool.max_depth", "14"),
                Map.entry("pool.max_prepared", "15"),
                Map.entry("pool.memory_percent", "16"),
                Map.entry("pool.starts", "2"),
                Map.entry("pool.refill_quiet_millis", "3"),
                Map.entry("pool.refill_latest_millis", "4"),
                Map.entry("limits.memory_mib", "512"),
                Map.entry("limits.cpu_millis", "0"),
                Map.entry("limits.disk_mib", "64"),
                Map.entry("limits.processes", "32"),
                Map.entry("limits.open_files", "328"),
                Map.entry("bounds.memory_mib", "1024"),
                Map.entry("bounds.cpu_millis", "0"),
                Map.entry("bounds.disk_mib", "128"),
                Map.entry("bounds.processes", "33"),
                Map.entry("bounds.open_files", "329"),
                Map.entry("execution.timeout_seconds", "5"),
                Map.entry("execution.max_timeout_seconds", "6"),
                Map.entry("sandboxes.max", "8"),
                Map.entry("node.patience_seconds", "9"),
                Map.entry("retention.days", "10"),
                Map.entry("retention.executions", "11"),
                Map.entry("usage.period_seconds", "12"),
                Map.entry("usage.retention_hours", "13"),
                Map.entry("sandboxes.lifetime_seconds", "14"),
                Map.entry("sandboxes.max_lifetime_seconds", "15"),
                Map.entry("sandboxes.idle_seconds", "0"),
                Map.entry("sandboxes.paused_days", "16"),
                Map.entry("snapshots.days", "17"),
                Map.entry("templates.image_source", "registry"),
                Map.entry("templates.wait_seconds", "21"),
                Map.entry("build.network", "off"),
                Map.entry("build.allow", "10.0.0.0/8, mirror.internal:443"),
                Map.entry("build.env.PIP_INDEX_URL", "http://mirror"),
                Map.entry("build.memory_mib", "1024"),
                Map.entry("build.cpu_millis", "1500"),
                Map.entry("build.disk_mib", "2048"),
                Map.entry("build.timeout_seconds", "22"),
                Map.entry("build.parallel", "3"),
                Map.entry("build.max_context_mib", "4"),
                Map.entry("build.keep", "5"),
                Map.entry("build.keep_days", "6"),
                Map.entry("images.quota_mib", "7"),
                Map.entry("images.keep_days", "8"),
                Map.entry("images.plain_http", "registry.internal"),
                Map.entry("snapshots.trusted_keys", "ab".repeat(32) + ", " + "cd".repeat(32))));
        assertThat(settings)
                .isEqualTo(new Settings(
                        1,
                        2,
                        Duration.ofMillis(3),
                        Duration.ofMillis(4),
                        new Limits(512L << 20, 0, 64L << 20, 32, 328),
                        new LimitBounds(1024L << 20, 0, 128L << 20, 33, 329),
                        Duration.ofSeconds(5),
                        Duration.ofSeconds(6),
                        8,
                        Duration.ofSeconds(9),
                        Duration.ofDays(10),
                        11,
                        Duration.ofSeconds(12),
                        Duration.ofHours(13),
                        Map.of("python", 7),
                        new Settings.PoolGrowth(14, 15, 16),
                        new Settings.Lives(
                                Optional.of(Duration.ofSeconds(14)),
                                Optional.of(Duration.ofSeconds(15)),
                                Optional.empty(),
                                Duration.ofDays(16),
                                Optional.of(Duration.ofDays(17))),
                        List.of("ab".repeat(32), "cd".repeat(32)),
                        new Settings.Builds(
                                false,
                                false,
                                List.of("10.0.0.0/8", "mirror.internal:443"),
                                Map.of("PIP_INDEX_URL", "http://mirror"),
                                new Limits(1024L << 20, 1500, 2048L << 20, 1024, 16_384),
                                Duration.ofSeconds(22),
                                3,
                                Duration.ofSeconds(21),
                                4L << 20,
                                7L << 20,
                                Duration.ofDays(8),
                                Duration.ofDays(6),
                                5,
                                List.of("registry.internal"))));
        assertThat(settings.poolDepth("python", OptionalInt.of(3))).isEqualTo(7);
        assertThat(settings.poolDepth("other", OptionalInt.empty())).isEqualTo(1);
        assertThat(settings.poolDepth("other", OptionalInt.of(3))).isEqualTo(3);
    }

    @Test
    void a_name_that_is_unknown_or_a_value_that_is_none_fails() {
        assertThatThrownBy(() -> Settings.parse(Map.of("pool.dept", "1"))).hasMessageContaining("pool.dept");
        assertThatThrownBy(() -> Settings.parse(Map.of("pool.depth", "many"))).hasMessageContaining("many");
        assertThatThrownBy(() -> Settings.parse(Map.of("pool.depth", "-1"))).hasMessageContaining("-1");
        assertThatThrownBy(() -> Settings.parse(Map.of("snapshots.trusted_keys", "my-key")))
                .hasMessageContaining("my-key");
        assertThatThrownBy(() -> Settings.parse(Map.of("limits.memory_mib", "1")))
                .hasMessageContaining("memory");
        assertThatThrownBy(() -> Settings.parse(Map.of("bounds.memory_mib", "128")))
                .hasMessageContaining("memory_bytes");
        assertThatThrownBy(() -> Settings.parse(Map.of("bounds.cpu_millis", "100", "limits.cpu_millis", "0")))
                .hasMessageContaining("cpu");
        assertThatThrownBy(() -> Settings.parse(Map.of("execution.timeout_seconds", "90000")))
                .hasMessageContaining("90000");
    }
}
