package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionQuery;
import atoll.core.execution.StandardStream;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class RetentionTest {
    private final CoreFixture fixture =
            new CoreFixture(Map.of("retention.days", "3", "retention.executions", "2", "pool.depth", "1")).ready();

    @AfterEach
    void close() {
        fixture.close();
    }

    private int records() {
        return fixture.core()
                .executions()
                .list(fixture.caller(), ExecutionQuery.ALL)
                .items()
                .size();
    }

    @Test
    void what_is_young_and_not_too_much_stays() throws Exception {
        ExecutionOutcome outcome = fixture.run("print 1");
        fixture.core().sweep();
        assertThat(records()).isEqualTo(1);
        assertThat(fixture.core()
                        .sandboxes()
                        .delete(fixture.caller(), outcome.sandboxId())
                        .end())
                .isPresent();
        fixture.core().sweep();
        assertThat(fixture.core()
                        .sandboxes()
                        .get(fixture.caller(), outcome.sandboxId())
                        .id())
                .isEqualTo(outcome.sandboxId());
    }

    @Test
    void old_records_go_with_their_output_and_ended_sandboxes_with_them() throws Exception {
        ExecutionOutcome outcome = fixture.run("print 1");
        assertThat(fixture.core()
                        .sandboxes()
                        .delete(fixture.caller(), outcome.sandboxId())
                        .end())
                .isPresent();
        fixture.clock.advance(Duration.ofDays(4));
        // With output on both streams: of such a one the record alone is not all.
        ExecutionOutcome young = fixture.run("print 2\nerr 3");
        Eventually.until(() -> fixture.node.unacknowledged() == 0, fixture.node::unacknowledged);
        fixture.core().sweep();
        assertThatThrownBy(() -> fixture.core().executions().get(fixture.caller(), outcome.executionId()))
                .hasMessageContaining("not found");
        assertThatThrownBy(() -> fixture.core().sandboxes().get(fixture.caller(), outcome.sandboxId()))
                .hasMessageContaining("not found");
        assertThat(fixture.node.remembers(outcome.executionId())).isFalse();
        assertThat(fixture.node.remembers(young.executionId())).isTrue();
        assertThat(fixture.core()
                        .executions()
                        .read(fixture.caller(), young.executionId(), StandardStream.STDOUT, 0, false)
                        .next())
                .isPresent();
    }

    @Test
    void more_records_than_allowed_go_the_oldest_first_and_never_a_running_one() throws Exception {
        try (var running = fixture.start(CodeExecRequest.of("wait gate"))) {
            ExecutionOutcome first = fixture.run("print 1");
            fixture.clock.advance(Duration.ofSeconds(1));
            ExecutionOutcome second = fixture.run("print 2");
            fixture.clock.advance(Duration.ofSeconds(1));
            ExecutionOutcome third = fixture.run("print 3");
            fixture.core().sweep();
            assertThat(fixture.store.execution(running.executionId())).isPresent();
            assertThat(fixture.store.execution(first.executionId())).isEmpty();
            assertThat(fixture.store.execution(second.executionId())).isEmpty();
            assertThat(fixture.store.execution(third.executionId())).isPresent();
            fixture.node.open("gate");
        }
    }

    @Test
    void live_sandboxes_stay_however_old_they_are() throws Exception {
        ExecutionOutcome outcome = fixture.run("set x 1");
        fixture.clock.advance(Duration.ofDays(400));
        fixture.core().sweep();
        assertThat(fixture.core()
                        .sandboxes()
                        .list(fixture.caller(), SandboxQuery.ALL)
                        .items())
                .hasSize(1);
        assertThat(fixture.run(CodeExecRequest.of("get x").in(outcome.sandboxId()))
                        .output()
                        .text())
                .isEqualTo("1");
    }
}
