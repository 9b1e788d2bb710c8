package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.testing.CoreFixture;
import atoll.core.usage.UsageQuery;
import atoll.core.usage.UsageSample;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class UsageTest {
    private static final Instant NOON = Instant.parse("2026-01-02T12:00:00Z");

    /** Samples only when it is told to. */
    private final CoreFixture fixture = new CoreFixture(
                    Map.of("pool.depth", "1", "usage.period_seconds", "3600", "usage.retention_hours", "2"))
            .ready();

    @AfterEach
    void close() {
        fixture.close();
    }

    private void sample(Instant at, Duration cpu) {
        fixture.node.use(at, cpu);
        fixture.core().sampleUsage();
    }

    @Test
    void cpu_in_percent_is_what_was_used_between_two_samples() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        sample(NOON, Duration.ofSeconds(10));
        sample(NOON.plusSeconds(5), Duration.ofMillis(12_500));
        sample(NOON.plusSeconds(15), Duration.ofMillis(12_500));
        assertThat(fixture.core()
                        .usage()
                        .samples(fixture.caller(), sandbox, UsageQuery.ALL)
                        .items())
                .extracting(UsageSample::cpuPercent)
                .containsExactly(OptionalDouble.empty(), OptionalDouble.of(50), OptionalDouble.of(0));
        UsageSample current =
                fixture.core().usage().current(fixture.caller(), sandbox).orElseThrow();
        assertThat(current.at()).isEqualTo(NOON.plusSeconds(15));
        assertThat(current.cpu()).isEqualTo(Duration.ofMillis(12_500));
        assertThat(current.memoryBytes()).isEqualTo(50L << 20);
        assertThat(current.memoryLimitBytes()).isEqualTo(256L << 20);
    }

    @Test
    void a_young_sandbox_is_looked_at_when_it_is_asked_for() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        assertThat(fixture.core().usage().current(fixture.caller(), sandbox)).isPresent();
    }

    @Test
    void boxes_that_wait_in_a_pool_leave_no_samples() throws Exception {
        fixture.full();
        sample(NOON, Duration.ofSeconds(1));
        SandboxId sandbox = fixture.run("print").sandboxId();
        assertThat(fixture.core()
                        .usage()
                        .samples(fixture.caller(), sandbox, UsageQuery.ALL)
                        .items())
                .isEmpty();
    }

    @Test
    void samples_stay_after_the_end_of_their_sandbox_until_their_time_is_up() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        sample(fixture.clock.instant(), Duration.ofSeconds(1));
        assertThat(fixture.core().sandboxes().delete(fixture.caller(), sandbox).end())
                .isPresent();
        fixture.core().sweep();
        assertThat(fixture.core()
                        .usage()
                        .samples(fixture.caller(), sandbox, UsageQuery.ALL)
                        .items())
                .hasSize(1);
        fixture.clock.advance(Duration.ofHours(3));
        fixture.core().sweep();
        assertThat(fixture.core()
                        .usage()
                        .samples(fixture.caller(), sandbox, UsageQuery.ALL)
                        .items())
                .isEmpty();
    }

    @Test
    void another_project_sees_none() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        Caller other = new Caller(ProjectId.random(), KeyId.random(), Set.of(Scope.values()));
        assertThatThrownBy(() -> fixture.core().usage().samples(other, sandbox, UsageQuery.ALL))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.SANDBOX_NOT_FOUND));
        assertThatThrownBy(() -> fixture.core().usage().current(other, sandbox)).isInstanceOf(AtollException.class);
    }
}
