package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.execution.CodeExecRequest;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.stats.Changes;
import atoll.core.stats.Changes.Topic;
import atoll.core.stats.PoolStats;
import atoll.core.stats.Stats;
import atoll.core.stats.Totals;
import atoll.core.template.LimitChanges;
import atoll.core.testing.CoreFixture;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class StatsTest {
    private static final Duration LONG = Duration.ofMinutes(2);

    private final CoreFixture core = new CoreFixture(Map.of("pool.depth", "2")).full();

    @AfterEach
    void stop() {
        core.close();
    }

    private Stats stats() {
        return core.core().stats();
    }

    private Totals totals() {
        return stats().totals(core.caller());
    }

    private Sandbox sandbox() throws InterruptedException {
        return core.core()
                .sandboxes()
                .create(
                        core.caller(),
                        new CreateSandbox(
                                Optional.of("python"),
                                Optional.empty(),
                                Map.of(),
                                Map.of(),
                                LimitChanges.NONE,
                                Optional.empty()));
    }

    private PoolStats python(int minutes) {
        return stats().pools(core.caller(), minutes).stream()
                .filter(pool -> pool.pool().template().equals("python"))
                .findFirst()
                .orElseThrow();
    }

    @Test
    void sandboxes_are_counted_by_state() throws Exception {
        assertThat(totals().sandboxes()).hasSize(SandboxState.values().length).containsEntry(SandboxState.RUNNING, 0L);
        Sandbox paused = sandbox();
        Sandbox ended = sandbox();
        Sandbox running = sandbox();
        core.core().sandboxes().pause(core.caller(), paused.id());
        core.core().sandboxes().delete(core.caller(), ended.id());
        assertThat(totals().sandboxes())
                .containsEntry(SandboxState.RUNNING, 1L)
                .containsEntry(SandboxState.PAUSED, 1L)
                .containsEntry(SandboxState.ENDED, 1L);
        assertThat(totals().activeSessions()).isEqualTo(1);
        assertThat(running.state()).isEqualTo(SandboxState.RUNNING);
    }

    @Test
    void executions_are_counted_for_ever() throws Exception {
        String sandbox = core.run("1").sandboxId().toString();
        assertThat(totals().executions()).isEqualTo(1);
        core.run(CodeExecRequest.of("2").in(SandboxId.parse(sandbox)));
        assertThat(totals().executions()).isEqualTo(2);
        core.restart();
        assertThat(totals().executions()).isEqualTo(2);
        core.run("3");
        assertThat(totals().executions()).isEqualTo(3);
    }

    @Test
    void how_fast_sandboxes_come_is_measured() throws Exception {
        assertThat(totals().coldStart().p50()).isEmpty();
        Sandbox first = sandbox();
        assertThat(first.state()).isEqualTo(SandboxState.RUNNING);
        assertThat(totals().coldStart().count()).isEqualTo(1);
        assertThat(totals().coldStart().p50()).isPresent();
        assertThat(totals().coldStart().p99()).isEqualTo(totals().coldStart().p50());
    }

    @Test
    void a_pool_has_a_history_by_the_minute() throws Exception {
        assertThat(python(180).hitRate()).isEmpty();
        Sandbox first = sandbox();
        core.clock.advance(Duration.ofMinutes(3));
        Sandbox second = sandbox();
        assertThat(first.id()).isNotEqualTo(second.id());
        PoolStats pool = python(180);
        assertThat(pool.minutes().getLast().depth()).isEqualTo(pool.pool().target());
        assertThat(pool.minutes()).extracting(minute -> minute.took().count()).containsExactly(1L, 1L);
        assertThat(Duration.between(
                        pool.minutes().getFirst().at(), pool.minutes().getLast().at()))
                .isEqualTo(Duration.ofMinutes(3));
        assertThat(pool.took().count()).isEqualTo(2);
        assertThat(pool.hitRate().orElseThrow()).isBetween(0.0, 1.0);
        assertThat(python(1).minutes()).hasSize(1);
        assertThat(python(0).minutes()).isEmpty();
        core.clock.advance(Duration.ofMinutes(200));
        assertThat(python(180).took().count()).isZero();
    }

    @Test
    void the_node_is_seen() throws Exception {
        assertThat(sandbox().state()).isEqualTo(SandboxState.RUNNING);
        var node = stats().node(core.caller());
        assertThat(node.connected()).isTrue();
        assertThat(node.runningSandboxes()).isEqualTo(1);
        assertThat(node.info().orElseThrow().cpus()).isPositive();
        assertThat(node.kernelVersion()).isNotEmpty();
    }

    @Test
    void who_waits_for_changes_is_told_which() throws Exception {
        Changes changes = stats().changes();
        Changes.State before = changes.now();
        Sandbox made = sandbox();
        Changes.State after = changes.await(before, EnumSet.allOf(Topic.class), LONG);
        assertThat(after.since(before)).contains(Topic.SANDBOXES, Topic.POOLS).doesNotContain(Topic.KEYS);
        core.run(CodeExecRequest.of("1").in(made.id()));
        Changes.State ran = changes.await(after, Set.of(Topic.EXECUTIONS), LONG);
        assertThat(ran.since(after)).contains(Topic.EXECUTIONS);
    }

    @Test
    void a_change_wakes_who_waits() throws Exception {
        Changes changes = stats().changes();
        Changes.State before = changes.now();
        var waiter = Thread.ofVirtual().start(() -> {
            try {
                assertThat(changes.await(before, Set.of(Topic.KEYS), LONG).since(before))
                        .contains(Topic.KEYS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        });
        core.core().keys().create(core.caller(), new CreateKey("k", Set.of(Scope.READ), Optional.empty()));
        assertThat(waiter.join(LONG)).isTrue();
    }

    @Test
    void nothing_changed_is_known_when_the_time_is_up() throws Exception {
        Changes changes = stats().changes();
        Changes.State before = changes.now();
        assertThat(changes.await(before, Set.of(Topic.KEYS), Duration.ofMillis(1))
                        .since(before))
                .doesNotContain(Topic.KEYS);
    }
}
