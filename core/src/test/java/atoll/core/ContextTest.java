package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExitReason;
import atoll.core.node.NodeContext;
import atoll.core.sandbox.Context;
import atoll.core.sandbox.Contexts;
import atoll.core.sandbox.CreateContext;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.SeenContext;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class ContextTest {
    private final CoreFixture fixture = new CoreFixture(Map.of("pool.depth", "1")).ready();

    @AfterEach
    void close() {
        fixture.close();
    }

    private Contexts contexts() {
        return fixture.core().contexts();
    }

    private SeenContext create(SandboxId sandbox) {
        return contexts()
                .create(fixture.caller(), sandbox, new CreateContext(Optional.of("bash"), "/srv", Map.of("A", "b")));
    }

    private static void fails(ErrorCode code, ThrowingCallable call) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    @Test
    void contexts_of_one_sandbox_keep_their_state_apart() throws Exception {
        SandboxId sandbox = fixture.run("set x 1").sandboxId();
        SeenContext made = create(sandbox);
        assertThat(made.context().isDefault()).isFalse();
        assertThat(made.seen().orElseThrow().cwd()).isEqualTo("/srv");
        ContextId id = made.context().id();
        assertThat(run("get x", sandbox, id).output().text()).isEqualTo("undefined");
        run("set x 2", sandbox, id);
        assertThat(fixture.run(CodeExecRequest.of("get x").in(sandbox)).output().text())
                .isEqualTo("1");
        assertThat(run("get x", sandbox, id).output().text()).isEqualTo("2");
        assertThat(contexts().list(fixture.caller(), sandbox)).hasSize(2).contains(made);
        assertThat(contexts().get(fixture.caller(), sandbox, id)).isEqualTo(made);
    }

    private ExecutionOutcome run(String code, SandboxId sandbox, ContextId context) throws InterruptedException {
        return fixture.run(CodeExecRequest.of(code).in(sandbox).in(context));
    }

    @Test
    void a_context_keeps_its_folder_and_environment_over_a_server_restart() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        Context made = create(sandbox).context();
        fixture.restart();
        assertThat(contexts().get(fixture.caller(), sandbox, made.id()).context())
                .isEqualTo(made);
    }

    @Test
    void a_restart_forgets_the_state_and_ends_what_runs() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        ContextId id = create(sandbox).context().id();
        run("set x 2", sandbox, id);
        ExecutionHandle running = fixture.start(
                CodeExecRequest.of("print a\nwait never").in(sandbox).in(id));
        assertThat(running.next()).isPresent();
        NodeContext restarted =
                contexts().restart(fixture.caller(), sandbox, id).seen().orElseThrow();
        assertThat(restarted.restarts()).isEqualTo(1);
        assertThat(running.await().exitReason()).isEqualTo(ExitReason.KERNEL_DIED);
        assertThat(run("get x", sandbox, id).output().text()).isEqualTo("undefined");
    }

    @Test
    void a_closed_context_is_not_there_any_more() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        ContextId id = create(sandbox).context().id();
        contexts().close(fixture.caller(), sandbox, id);
        assertThat(contexts().list(fixture.caller(), sandbox)).hasSize(1);
        fails(ErrorCode.CONTEXT_NOT_FOUND, () -> contexts().get(fixture.caller(), sandbox, id));
        fails(ErrorCode.CONTEXT_NOT_FOUND, () -> run("print", sandbox, id));
        fails(ErrorCode.CONTEXT_NOT_FOUND, () -> contexts().close(fixture.caller(), sandbox, id));
    }

    @Test
    void after_its_default_context_was_closed_a_sandbox_opens_another() throws Exception {
        ExecutionOutcome first = fixture.run("set x 1");
        contexts().close(fixture.caller(), first.sandboxId(), first.contextId());
        ExecutionOutcome second = fixture.run(CodeExecRequest.of("get x").in(first.sandboxId()));
        assertThat(second.contextId()).isNotEqualTo(first.contextId());
        assertThat(second.output().text()).isEqualTo("undefined");
        fixture.restart();
        assertThat(fixture.run(CodeExecRequest.of("print").in(first.sandboxId()))
                        .contextId())
                .isEqualTo(second.contextId());
    }

    @Test
    void an_interrupt_ends_what_runs_and_lets_the_next_one_run() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        ContextId id = create(sandbox).context().id();
        assertThat(fixture.core().executions().interruptContext(fixture.caller(), sandbox, id))
                .isEmpty();
        ExecutionHandle running = fixture.start(
                CodeExecRequest.of("print a\nwait never").in(sandbox).in(id));
        assertThat(running.next()).isPresent();
        assertThat(fixture.core().executions().interruptContext(fixture.caller(), sandbox, id))
                .contains(running.executionId());
        assertThat(running.await().exitReason()).isEqualTo(ExitReason.INTERRUPTED);
    }

    @Test
    void code_in_the_background_goes_on_without_its_caller() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        ContextId id = create(sandbox).context().id();
        ExecutionHandle started = fixture.start(
                CodeExecRequest.of("wait gate\nprint done").in(sandbox).in(id));
        started.close();
        assertThat(contexts()
                        .get(fixture.caller(), sandbox, id)
                        .seen()
                        .orElseThrow()
                        .state())
                .isEqualTo(NodeContext.State.RUNNING);
        fixture.node.open("gate");
        Eventually.until(
                () -> fixture.store
                        .execution(started.executionId())
                        .flatMap(ExecutionRecord::outcome)
                        .isPresent(),
                () -> fixture.store.execution(started.executionId()));
        assertThat(fixture.core()
                        .executions()
                        .get(fixture.caller(), started.executionId())
                        .outcome()
                        .orElseThrow()
                        .output()
                        .text())
                .isEqualTo("done");
    }

    @Test
    void what_cannot_be_opened_is_on_no_record() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        fails(
                ErrorCode.INVALID_REQUEST,
                () -> contexts()
                        .create(fixture.caller(), sandbox, new CreateContext(Optional.empty(), "/nowhere", Map.of())));
        fails(
                ErrorCode.LANGUAGE_UNAVAILABLE,
                () -> contexts()
                        .create(fixture.caller(), sandbox, new CreateContext(Optional.of("python"), "", Map.of())));
        assertThat(contexts().list(fixture.caller(), sandbox)).hasSize(1);
    }

    @Test
    void contexts_of_an_ended_sandbox_are_on_record_and_of_no_use() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        assertThat(fixture.core().sandboxes().delete(fixture.caller(), sandbox).state())
                .isEqualTo(SandboxState.ENDED);
        assertThat(contexts().list(fixture.caller(), sandbox))
                .singleElement()
                .satisfies(seen -> assertThat(seen.seen()).isEmpty());
        fails(ErrorCode.SANDBOX_ENDED, () -> create(sandbox));
    }

    @Test
    void another_project_has_no_part_in_them() throws Exception {
        ExecutionOutcome mine = fixture.run("print");
        Caller other = new Caller(ProjectId.random(), KeyId.random(), Set.of(Scope.values()));
        fails(ErrorCode.SANDBOX_NOT_FOUND, () -> contexts().list(other, mine.sandboxId()));
        fails(ErrorCode.SANDBOX_NOT_FOUND, () -> contexts().close(other, mine.sandboxId(), mine.contextId()));
        fails(
                ErrorCode.SANDBOX_NOT_FOUND,
                () -> fixture.core().executions().interruptContext(other, mine.sandboxId(), mine.contextId()));
    }
}
