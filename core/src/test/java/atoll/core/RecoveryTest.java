package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExitReason;
import atoll.core.node.Box;
import atoll.core.node.BoxSpec;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.template.Limits;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class RecoveryTest {
    private final CoreFixture fixture =
            new CoreFixture(Map.of("pool.depth", "1", "node.patience_seconds", "5")).ready();

    @AfterEach
    void close() {
        fixture.close();
    }

    private Sandbox sandbox(SandboxId id) {
        return fixture.core().sandboxes().get(fixture.caller(), id);
    }

    private ExecutionOutcome recorded(ExecutionId id) {
        Eventually.until(
                () -> fixture.store
                        .execution(id)
                        .flatMap(ExecutionRecord::outcome)
                        .isPresent(),
                () -> fixture.store.execution(id));
        return fixture.core().executions().get(fixture.caller(), id).outcome().orElseThrow();
    }

    @Test
    void a_server_that_was_replaced_serves_nobody_and_says_why() throws Exception {
        ExecutionOutcome before = fixture.run("set x 5");
        fixture.node.claimForAnother();
        assertThatThrownBy(() -> fixture.run(CodeExecRequest.of("get x").in(before.sandboxId())))
                .isInstanceOfSatisfying(AtollException.class, e -> {
                    assertThat(e.code()).isEqualTo(ErrorCode.NODE_UNAVAILABLE);
                    assertThat(e.message()).contains("replaced");
                    assertThat(e.remediation()).contains("newer server");
                });
        assertThatThrownBy(() -> fixture.run("print 1")).hasMessageContaining("replaced");
        Eventually.until(() -> fixture.core().status().problem().isPresent(), fixture.core()::status);
        assertThat(fixture.core().status().replaced()).isTrue();
        assertThat(fixture.core().status().nodeConnected()).isFalse();
        assertThat(fixture.core().status().problem().orElseThrow()).contains("replaced");
        // What it did not do any more is not on record as if it had been done.
        assertThat(sandbox(before.sandboxId()).state()).isEqualTo(SandboxState.RUNNING);
    }

    @Test
    void whoever_notices_first_every_caller_is_told_that_the_server_was_replaced() throws Exception {
        ExecutionHandle running = fixture.start(CodeExecRequest.of("print a\nwait never"));
        assertThat(running.next()).isPresent();
        fixture.node.claimForAnother();
        Eventually.until(() -> fixture.core().status().replaced(), fixture.core()::status);
        assertThatThrownBy(() -> fixture.run(CodeExecRequest.of("print").in(running.sandboxId())))
                .hasMessageContaining("replaced");
        // One whose stream breaks after that has no node to wait for.
        fixture.node.goAway();
        assertThatThrownBy(running::await).hasMessageContaining("replaced");
    }

    @Test
    void a_caller_that_waits_for_the_node_is_told_when_a_newer_server_has_it_then() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        fixture.node.goAway();
        fixture.node.claimForAnother();
        Thread back = Thread.ofVirtual().start(() -> {
            Eventually.until(() -> !fixture.core().status().nodeConnected(), fixture.core()::status);
            fixture.node.comeBack();
        });
        assertThatThrownBy(() -> fixture.run(CodeExecRequest.of("print").in(sandbox)))
                .hasMessageContaining("replaced");
        back.join();
    }

    @Test
    void a_server_notices_that_it_was_replaced_while_nobody_calls() {
        fixture.node.claimForAnother();
        Eventually.until(() -> fixture.core().status().replaced(), fixture.core()::status);
    }

    @Test
    void a_server_that_starts_after_another_owns_the_node() throws Exception {
        fixture.node.claimForAnother();
        Eventually.until(() -> fixture.core().status().replaced(), fixture.core()::status);
        fixture.restart();
        assertThat(fixture.run("print 1").output().text()).isEqualTo("1");
    }

    @Test
    void sandboxes_and_their_state_outlive_the_server() throws Exception {
        ExecutionOutcome before = fixture.run("set x 5");
        fixture.restart();
        ExecutionOutcome after = fixture.run(CodeExecRequest.of("get x").in(before.sandboxId()));
        assertThat(after.output().text()).isEqualTo("5");
        assertThat(after.contextId()).isEqualTo(before.contextId());
    }

    @Test
    void an_execution_that_ran_on_without_the_server_is_complete_on_record() throws Exception {
        ExecutionHandle handle = fixture.start(CodeExecRequest.of("print a\nwait gate\nprint b"));
        assertThat(handle.next()).isPresent();
        fixture.restart();
        assertThat(fixture.core()
                        .executions()
                        .get(fixture.caller(), handle.executionId())
                        .outcome())
                .isEmpty();
        fixture.node.open("gate");
        ExecutionOutcome outcome = recorded(handle.executionId());
        assertThat(outcome.output().text()).isEqualTo("a\nb");
        assertThat(outcome.exitReason()).isEqualTo(ExitReason.COMPLETED);
        Eventually.until(() -> fixture.node.unacknowledged() == 0, fixture.node::unacknowledged);
    }

    @Test
    void an_execution_that_ended_without_the_server_is_taken_over() throws Exception {
        ExecutionHandle handle = fixture.start(CodeExecRequest.of("print a\nwait gate\nprint b"));
        fixture.core().close();
        fixture.node.open("gate");
        Eventually.until(() -> fixture.node.unacknowledged() == 1, fixture.node::executions);
        fixture.restart();
        assertThat(recorded(handle.executionId()).output().text()).isEqualTo("a\nb");
    }

    @Test
    void a_sandbox_whose_machine_was_restarted_has_ended_and_says_why() throws Exception {
        ExecutionHandle handle = fixture.start(CodeExecRequest.of("wait never"));
        assertThat(fixture.store.execution(handle.executionId())).isPresent();
        fixture.core().close();
        fixture.node.loseEverything();
        fixture.restart();
        Sandbox lost = sandbox(handle.sandboxId());
        assertThat(lost.state()).isEqualTo(SandboxState.ENDED);
        assertThat(lost.end().orElseThrow().reason()).isEqualTo(EndReason.LOST);
        assertThat(lost.end().orElseThrow().detail()).contains("machine was restarted");
        assertThat(recorded(handle.executionId()).exitReason()).isEqualTo(ExitReason.SANDBOX_ENDED);
    }

    @Test
    void a_box_that_nobody_knows_is_removed() {
        BoxId stray = BoxId.random();
        fixture.core().close();
        Box made = fixture.node.createBox(stray, new BoxSpec("a".repeat(64), Limits.DEFAULT, List.of(), Map.of()));
        assertThat(made.id()).isEqualTo(stray);
        fixture.restart();
        Eventually.until(() -> fixture.node.box(stray).isEmpty(), fixture.node::boxes);
    }

    @Test
    void a_sandbox_that_ended_in_the_store_first_loses_its_box() throws Exception {
        SandboxId id = fixture.run("print").sandboxId();
        Sandbox running = sandbox(id);
        fixture.core().close();
        fixture.store.updateSandbox(
                running.ended(new Sandbox.End(EndReason.DELETED, "deleted just before the crash", Instant.EPOCH)));
        fixture.restart();
        Eventually.until(() -> fixture.node.box(running.box()).isEmpty(), fixture.node::boxes);
    }

    @Test
    void a_sandbox_whose_last_step_was_not_stored_runs_on() throws Exception {
        SandboxId id = fixture.run("set x 1").sandboxId();
        Sandbox running = sandbox(id);
        fixture.core().close();
        CoreFixture again = fixture;
        Sandbox creating = new Sandbox(
                id,
                running.project(),
                running.template(),
                SandboxState.CREATING,
                running.limits(),
                running.labels(),
                running.box(),
                running.run(),
                running.createdAt(),
                Optional.empty());
        again.store.updateSandbox(creating);
        again.restart();
        assertThat(sandbox(id).state()).isEqualTo(SandboxState.RUNNING);
        assertThat(again.run(CodeExecRequest.of("get x").in(id)).output().text())
                .isEqualTo("1");
    }

    @Test
    void a_sandbox_that_was_never_assigned_is_undone() {
        fixture.full();
        Box pooled = fixture.node.boxes().getFirst();
        fixture.core().close();
        Sandbox creating = new Sandbox(
                SandboxId.random(),
                ProjectId.DEFAULT,
                "python",
                SandboxState.CREATING,
                Limits.DEFAULT,
                Map.of(),
                BoxId.random(),
                RunId.random(),
                Instant.EPOCH,
                Optional.empty());
        fixture.store.insertSandbox(creating, Optional.empty());
        fixture.restart();
        assertThat(sandbox(creating.id()).state()).isEqualTo(SandboxState.ENDED);
        assertThat(fixture.node.box(pooled.id())).isPresent();
    }

    @Test
    void a_box_that_ended_while_the_server_was_away_ends_its_sandbox() throws Exception {
        SandboxId id = fixture.run("print").sandboxId();
        BoxId box = sandbox(id).box();
        fixture.core().close();
        fixture.node.end(box, EndReason.OUT_OF_MEMORY, "peak 255 MiB");
        fixture.restart();
        assertThat(sandbox(id).end().orElseThrow().detail()).isEqualTo("peak 255 MiB");
        Eventually.until(() -> fixture.node.box(box).isEmpty(), fixture.node::boxes);
    }

    @Test
    void a_node_that_stays_away_is_reported_and_found_again() throws Exception {
        SandboxId id = fixture.run("set x 1").sandboxId();
        fixture.node.goAway();
        Eventually.until(() -> !fixture.core().status().nodeConnected(), fixture.core()::status);
        Eventually.until(() -> fixture.core().status().problem().isPresent(), fixture.core()::status);
        fixture.node.comeBack();
        Eventually.until(() -> fixture.core().status().nodeConnected(), fixture.core()::status);
        assertThat(fixture.run(CodeExecRequest.of("get x").in(id)).output().text())
                .isEqualTo("1");
    }

    @Test
    void a_deletion_needs_no_node() throws Exception {
        SandboxId id = fixture.run("print").sandboxId();
        BoxId box = sandbox(id).box();
        fixture.node.goAway();
        assertThat(fixture.core().sandboxes().delete(fixture.caller(), id).state())
                .isEqualTo(SandboxState.ENDED);
        assertThatThrownBy(() -> fixture.run(CodeExecRequest.of("").in(id)))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.SANDBOX_ENDED));
        fixture.node.comeBack();
        Eventually.until(() -> fixture.node.box(box).isEmpty(), fixture.node::boxes);
    }

    @Test
    void an_older_server_is_told_that_it_has_been_replaced() {
        fixture.node.claim(1_000);
        fixture.restart();
        assertThat(fixture.node.info().claimedEpoch()).isEqualTo(1_001);
    }
}
