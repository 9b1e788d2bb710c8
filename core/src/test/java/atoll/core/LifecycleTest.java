package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExitReason;
import atoll.core.node.BoxAssignment;
import atoll.core.node.BoxState;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.Created;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.IfExists;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.OnTimeout;
import atoll.core.sandbox.Run;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Term;
import atoll.core.sandbox.UpdateSandbox;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.template.LimitChanges;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import atoll.core.testing.FakeCall;
import atoll.core.testing.FakeNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class LifecycleTest {
    private static final LifecycleChanges KILLED_AFTER_A_MINUTE = new LifecycleChanges(
            Optional.of(Term.of(Duration.ofMinutes(1))),
            Optional.empty(),
            Optional.of(OnTimeout.KILL),
            Optional.empty());
    private static final LifecycleChanges PAUSED_AFTER_A_MINUTE = new LifecycleChanges(
            Optional.of(Term.of(Duration.ofMinutes(1))), Optional.empty(), Optional.empty(), Optional.empty());
    private static final LifecycleChanges NOT_BY_USE =
            new LifecycleChanges(Optional.empty(), Optional.empty(), Optional.empty(), Optional.of(false));

    private final CoreFixture fixture =
            new CoreFixture(Map.of("pool.depth", "1", "node.patience_seconds", "20", "sandboxes.max", "20")).ready();

    LifecycleTest() {
        fixture.clock.stop();
    }

    @AfterEach
    void close() {
        fixture.close();
    }

    private Sandbox create(LifecycleChanges lifecycle) throws Exception {
        return create(Optional.empty(), IfExists.FAIL, lifecycle).sandbox();
    }

    private Created create(Optional<String> name, IfExists ifExists, LifecycleChanges lifecycle) throws Exception {
        CreateSandbox request = new CreateSandbox(
                Optional.of("python"),
                Optional.empty(),
                Map.of("WHO", "me"),
                Map.of(),
                LimitChanges.NONE,
                Optional.empty(),
                name,
                ifExists,
                lifecycle,
                Optional.empty(),
                Optional.empty());
        return fixture.core().sandboxes().createOrGet(fixture.caller(), request);
    }

    private Sandbox get(SandboxId id) {
        return fixture.core().sandboxes().get(fixture.caller(), id);
    }

    private Sandbox pause(SandboxId id) throws Exception {
        return fixture.core().sandboxes().pause(fixture.caller(), id);
    }

    private Sandbox resume(SandboxId id) throws Exception {
        return fixture.core().sandboxes().resume(fixture.caller(), id, Optional.empty());
    }

    private List<Run> runs(SandboxId id) {
        return fixture.core().sandboxes().runs(fixture.caller(), id);
    }

    private String run(SandboxId id, String code) throws Exception {
        ExecutionOutcome outcome = fixture.run(CodeExecRequest.of(code).in(id));
        assertThat(outcome.exitReason()).isEqualTo(ExitReason.COMPLETED);
        return outcome.output().text();
    }

    @Test
    void of_a_sandbox_that_is_paused_with_its_files_alone_nothing_goes_on_and_its_contexts_start_anew()
            throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        assertThat(run(id, "set x 7\nget x")).isEqualTo("7");
        try (ExecutionHandle waiting = fixture.core()
                .codeExecution()
                .start(
                        fixture.caller(),
                        CodeExecRequest.of("wait gate\nprint done").in(id))) {
            Sandbox paused = fixture.core().sandboxes().pause(fixture.caller(), id, SnapshotKind.FILES);
            assertThat(paused.state()).isEqualTo(SandboxState.PAUSED);
            assertThat(waiting.await().exitReason()).isEqualTo(ExitReason.LOST);
        }
        assertThat(runs(id).getFirst().end().orElseThrow().detail()).isEqualTo("Its files alone were kept.");
        // By use, in the context that it had.
        assertThat(run(id, "get x")).isEqualTo("undefined");
        assertThat(get(id).state()).isEqualTo(SandboxState.RUNNING);
        assertThat(fixture.core().contexts().list(fixture.caller(), id)).hasSize(1);
        // With memory again.
        assertThat(run(id, "set x 8\nget x")).isEqualTo("8");
        assertThat(pause(id).state()).isEqualTo(SandboxState.PAUSED);
        assertThat(run(id, "get x")).isEqualTo("8");
    }

    @Test
    void a_pause_whose_answer_is_lost_is_recorded_as_what_it_was() throws Exception {
        for (SnapshotKind kept : SnapshotKind.values()) {
            SandboxId id = create(LifecycleChanges.NONE).id();
            fixture.node.failOnce(FakeCall.PAUSE_BOX, FakeCall.Step.AFTER, failure(ErrorCode.INTERNAL));
            Sandbox paused = fixture.core().sandboxes().pause(fixture.caller(), id, kept);
            assertThat(paused.state()).isEqualTo(SandboxState.PAUSED);
            assertThat(runs(id).getFirst().end().orElseThrow().detail())
                    .isEqualTo(kept == SnapshotKind.FILES ? "Its files alone were kept." : "");
        }
    }

    private void becomes(SandboxId id, SandboxState state) {
        Eventually.until(() -> get(id).state() == state, () -> get(id));
    }

    private static void fails(ErrorCode code, ThrowingCallable work) {
        assertThatThrownBy(work)
                .isInstanceOfSatisfying(
                        AtollException.class,
                        e -> assertThat(e.code()).as(e.message()).isEqualTo(code));
    }

    private static AtollException failure(ErrorCode code) {
        return new AtollException(code, "made to fail", "", "");
    }

    // Pause and resume.

    @Test
    void a_paused_sandbox_goes_on_where_it_was() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        run(id, "set x 5");
        Sandbox paused = pause(id);
        assertThat(paused.state()).isEqualTo(SandboxState.PAUSED);
        assertThat(paused.pausedAt()).contains(fixture.clock.instant());
        assertThat(fixture.node.box(paused.box()).orElseThrow().state()).isEqualTo(BoxState.PAUSED);
        assertThat(fixture.store.sandbox(id)).contains(paused);
        Sandbox resumed = resume(id);
        assertThat(resumed.state()).isEqualTo(SandboxState.RUNNING);
        assertThat(resumed.pausedAt()).isEmpty();
        assertThat(resumed.pausedIn()).isEmpty();
        assertThat(resumed.box()).isEqualTo(paused.box());
        assertThat(run(id, "get x")).isEqualTo("5");
        assertThat(fixture.node.envOf(resumed.box())).containsEntry("WHO", "me");
    }

    @Test
    void pausing_and_resuming_twice_is_no_error() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        assertThat(resume(id).state()).isEqualTo(SandboxState.RUNNING);
        Sandbox paused = pause(id);
        assertThat(pause(id)).isEqualTo(paused);
        assertThat(resume(id).run()).isEqualTo(resume(id).run());
    }

    @Test
    void each_life_is_a_run_on_record() throws Exception {
        Sandbox made = create(LifecycleChanges.NONE);
        Sandbox paused = pause(made.id());
        Sandbox resumed = resume(made.id());
        fixture.core().sandboxes().delete(fixture.caller(), made.id());
        List<Run> runs = runs(made.id());
        assertThat(runs).extracting(Run::id).containsExactly(made.run(), resumed.run());
        assertThat(runs).extracting(Run::how).containsExactly(Run.How.START, Run.How.RESUME);
        assertThat(runs.get(0).end().orElseThrow().reason()).isEqualTo("paused");
        assertThat(runs.get(0).end().orElseThrow().into()).isEqualTo(paused.pausedIn());
        assertThat(runs.get(1).from()).isEqualTo(paused.pausedIn());
        assertThat(runs.get(1).end().orElseThrow().reason()).isEqualTo("deleted");
    }

    @Test
    void use_resumes_a_paused_sandbox() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        run(id, "set x 5");
        pause(id);
        assertThat(run(id, "get x")).isEqualTo("5");
        pause(id);
        assertThat(fixture.core().ports().list(fixture.caller(), id)).isEmpty();
        assertThat(get(id).state()).isEqualTo(SandboxState.RUNNING);
    }

    @Test
    void use_does_not_resume_where_that_was_not_agreed() throws Exception {
        SandboxId id = create(NOT_BY_USE).id();
        run(id, "set x 5");
        pause(id);
        fails(ErrorCode.SANDBOX_PAUSED, () -> run(id, "get x"));
        fails(ErrorCode.SANDBOX_PAUSED, () -> fixture.core().ports().list(fixture.caller(), id));
        assertThat(get(id).state()).isEqualTo(SandboxState.PAUSED);
        resume(id);
        assertThat(run(id, "get x")).isEqualTo("5");
    }

    @Test
    void reading_records_does_not_resume() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        ExecutionOutcome outcome = fixture.run(CodeExecRequest.of("print a").in(id));
        pause(id);
        Caller caller = fixture.caller();
        fixture.core().contexts().list(caller, id);
        fixture.core().sandboxes().list(caller, SandboxQuery.ALL);
        fixture.core().executions().get(caller, outcome.executionId());
        fixture.core().processes().list(caller, atoll.core.process.ProcessQuery.in(id));
        fixture.core().usage().current(caller, id);
        runs(id);
        assertThat(get(id).state()).isEqualTo(SandboxState.PAUSED);
    }

    @Test
    void many_who_use_a_paused_sandbox_at_once_resume_it_once() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        run(id, "set x 5");
        pause(id);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Callable<String>> calls = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                calls.add(() -> run(id, "get x"));
            }
            for (Future<String> call : threads.invokeAll(calls)) {
                assertThat(call.get()).isEqualTo("5");
            }
        }
        assertThat(runs(id)).hasSize(2);
    }

    @Test
    void a_call_that_meets_a_pause_waits_for_it_and_goes_on() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        run(id, "set x 5");
        FakeNode.Hold hold = fixture.node.hold(FakeCall.PAUSE_BOX, FakeCall.Step.MIDWAY);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<Sandbox> pausing = threads.submit(() -> pause(id));
            hold.awaitReached();
            assertThat(get(id).state()).isEqualTo(SandboxState.PAUSING);
            Future<String> call = threads.submit(() -> run(id, "get x"));
            hold.release();
            assertThat(pausing.get().state()).isEqualTo(SandboxState.PAUSED);
            assertThat(call.get()).isEqualTo("5");
        }
        assertThat(get(id).state()).isEqualTo(SandboxState.RUNNING);
    }

    @Test
    void a_pause_that_fails_leaves_it_running() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        run(id, "set x 5");
        for (FakeCall.Step step : List.of(FakeCall.Step.BEFORE, FakeCall.Step.MIDWAY)) {
            fixture.node.failOnce(FakeCall.PAUSE_BOX, step, failure(ErrorCode.DISK_FULL));
            fails(ErrorCode.DISK_FULL, () -> pause(id));
            assertThat(get(id).state()).isEqualTo(SandboxState.RUNNING);
            assertThat(get(id).pausedIn()).isEmpty();
            assertThat(run(id, "get x")).isEqualTo("5");
        }
        assertThat(runs(id)).hasSize(1);
    }

    @Test
    void a_pause_whose_answer_was_an_error_after_all_is_one() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        fixture.node.failOnce(FakeCall.PAUSE_BOX, FakeCall.Step.AFTER, failure(ErrorCode.INTERNAL));
        assertThat(pause(id).state()).isEqualTo(SandboxState.PAUSED);
    }

    @Test
    void a_sandbox_that_is_killed_inside_a_pause_or_resume_has_ended_for_who_asked_for_it() throws Exception {
        for (FakeCall call : List.of(FakeCall.PAUSE_BOX, FakeCall.RESUME_BOX)) {
            Sandbox sandbox = create(LifecycleChanges.NONE);
            if (call == FakeCall.RESUME_BOX) {
                assertThat(pause(sandbox.id()).state()).isEqualTo(SandboxState.PAUSED);
            }
            try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
                AtomicInteger asked = new AtomicInteger();
                FakeNode.Hold hold = underWay(threads, sandbox, call);
                fixture.node.at(call, FakeCall.Step.BEFORE, () -> {
                    if (asked.incrementAndGet() == 2) {
                        fixture.node.end(sandbox.box(), EndReason.CRASHED, "killed");
                    }
                    throw failure(ErrorCode.INTERNAL);
                });
                fails(ErrorCode.SANDBOX_ENDED, () -> change(call, sandbox.id()));
                assertThat(get(sandbox.id()).end().orElseThrow().reason()).isEqualTo(EndReason.CRASHED);
                assertThat(asked).hasValue(2);
                fixture.node.fail(call, FakeCall.Step.BEFORE, null);
                hold.release();
            }
        }
    }

    @Test
    void the_outcome_of_a_pause_or_resume_is_awaited_while_its_node_is_about_it() throws Exception {
        for (FakeCall call : List.of(FakeCall.PAUSE_BOX, FakeCall.RESUME_BOX)) {
            Sandbox sandbox = create(LifecycleChanges.NONE);
            if (call == FakeCall.RESUME_BOX) {
                assertThat(pause(sandbox.id()).state()).isEqualTo(SandboxState.PAUSED);
            }
            try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
                AtomicInteger asked = new AtomicInteger();
                FakeNode.Hold hold = underWay(threads, sandbox, call);
                fixture.node.at(call, FakeCall.Step.BEFORE, () -> {
                    if (asked.incrementAndGet() < 4) {
                        throw failure(ErrorCode.INTERNAL);
                    }
                    hold.release();
                });
                Sandbox changed = change(call, sandbox.id());
                assertThat(changed.state())
                        .isEqualTo(call == FakeCall.PAUSE_BOX ? SandboxState.PAUSED : SandboxState.RUNNING);
                assertThat(asked).hasValue(4);
                fixture.node.fail(call, FakeCall.Step.BEFORE, null);
            }
        }
    }

    private Sandbox change(FakeCall call, SandboxId id) throws Exception {
        return call == FakeCall.PAUSE_BOX ? pause(id) : resume(id);
    }

    /** The node is in the middle of it, by a call that nobody waits for. */
    private FakeNode.Hold underWay(ExecutorService threads, Sandbox sandbox, FakeCall call) {
        FakeNode.Hold hold = fixture.node.hold(call, FakeCall.Step.MIDWAY);
        var _ = threads.submit(() -> call == FakeCall.PAUSE_BOX
                ? fixture.node.pauseBox(sandbox.box(), SnapshotId.random())
                : fixture.node.resumeBox(
                        sandbox.box(),
                        Optional.empty(),
                        new BoxAssignment(sandbox.id(), "again", Map.of(), sandbox.limits(), Optional.empty())));
        hold.awaitReached();
        return hold;
    }

    @Test
    void a_resume_that_fails_leaves_it_paused_and_can_be_tried_again() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        run(id, "set x 5");
        Sandbox paused = pause(id);
        for (FakeCall.Step step : List.of(FakeCall.Step.BEFORE, FakeCall.Step.MIDWAY)) {
            fixture.node.failOnce(FakeCall.RESUME_BOX, step, failure(ErrorCode.NODE_FULL));
            fails(ErrorCode.NODE_FULL, () -> run(id, "get x"));
            assertThat(get(id)).isEqualTo(paused.active(get(id).lastActiveAt()));
        }
        fixture.node.failOnce(FakeCall.RESUME_BOX, FakeCall.Step.AFTER, failure(ErrorCode.INTERNAL));
        assertThat(run(id, "get x")).isEqualTo("5");
        assertThat(runs(id)).hasSize(2);
    }

    @Test
    void code_that_runs_stands_still_over_a_pause_and_goes_on() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        try (ExecutionHandle handle =
                fixture.start(CodeExecRequest.of("print a\nwait gate\nprint b").in(id))) {
            assertThat(handle.next()).isPresent();
            pause(id);
            fixture.node.open("gate");
            ExecutionRecord record = fixture.core().executions().get(fixture.caller(), handle.executionId());
            assertThat(record.outcome()).isEmpty();
            resume(id);
            assertThat(handle.await().output().text()).isEqualTo("a\nb");
        }
    }

    @Test
    void code_of_a_paused_sandbox_stays_running_over_a_restart_of_the_server() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        ExecutionId execution;
        try (ExecutionHandle handle =
                fixture.start(CodeExecRequest.of("print a\nwait gate\nprint b").in(id))) {
            execution = handle.executionId();
            assertThat(handle.next()).isPresent();
        }
        pause(id);
        fixture.restart();
        assertThat(fixture.store.execution(execution).orElseThrow().outcome()).isEmpty();
        assertThat(get(id).state()).isEqualTo(SandboxState.PAUSED);
        fixture.node.open("gate");
        resume(id);
        Eventually.until(
                () -> fixture.store.execution(execution).orElseThrow().outcome().isPresent(),
                () -> fixture.store.execution(execution));
        assertThat(fixture.store
                        .execution(execution)
                        .flatMap(ExecutionRecord::outcome)
                        .orElseThrow()
                        .output()
                        .text())
                .isEqualTo("a\nb");
    }

    @Test
    void an_interrupt_resumes_only_where_use_does() throws Exception {
        SandboxId id = create(NOT_BY_USE).id();
        try (ExecutionHandle handle =
                fixture.start(CodeExecRequest.of("print a\nwait never").in(id))) {
            assertThat(handle.next()).isPresent();
            pause(id);
            fails(
                    ErrorCode.SANDBOX_PAUSED,
                    () -> fixture.core().executions().interrupt(fixture.caller(), handle.executionId()));
            assertThat(get(id).state()).isEqualTo(SandboxState.PAUSED);
            fixture.core()
                    .sandboxes()
                    .update(
                            fixture.caller(),
                            id,
                            new UpdateSandbox(
                                    LimitChanges.NONE,
                                    Map.of(),
                                    Optional.empty(),
                                    new LifecycleChanges(
                                            Optional.empty(), Optional.empty(), Optional.empty(), Optional.of(true))));
            fixture.core().executions().interrupt(fixture.caller(), handle.executionId());
            assertThat(handle.await().exitReason()).isEqualTo(ExitReason.INTERRUPTED);
            assertThat(get(id).state()).isEqualTo(SandboxState.RUNNING);
        }
    }

    // Deletion.

    @Test
    void a_paused_sandbox_is_deleted_without_being_resumed() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        Sandbox paused = pause(id);
        fixture.node.fail(FakeCall.RESUME_BOX, FakeCall.Step.BEFORE, failure(ErrorCode.INTERNAL));
        Sandbox deleted = fixture.core().sandboxes().delete(fixture.caller(), id);
        assertThat(deleted.end().orElseThrow().reason()).isEqualTo(EndReason.DELETED);
        Eventually.until(() -> fixture.node.box(paused.box()).isEmpty(), () -> fixture.node.box(paused.box()));
        assertThat(fixture.node.stored().pauses()).isZero();
        fails(ErrorCode.SANDBOX_ENDED, () -> resume(id));
        fails(ErrorCode.SANDBOX_ENDED, () -> pause(id));
    }

    @Test
    void a_delete_never_waits_for_a_pause_or_a_resume() throws Exception {
        for (FakeCall call : List.of(FakeCall.PAUSE_BOX, FakeCall.RESUME_BOX)) {
            SandboxId id = create(LifecycleChanges.NONE).id();
            if (call == FakeCall.RESUME_BOX) {
                pause(id);
            }
            FakeNode.Hold hold = fixture.node.hold(call, FakeCall.Step.MIDWAY);
            try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
                Future<Sandbox> under = threads.submit(() -> call == FakeCall.PAUSE_BOX ? pause(id) : resume(id));
                hold.awaitReached();
                Sandbox deleted = fixture.core().sandboxes().delete(fixture.caller(), id);
                assertThat(deleted.state()).isEqualTo(SandboxState.ENDED);
                hold.release();
                assertThatThrownBy(under::get).hasMessageContaining("has ended: deleted");
                Eventually.until(
                        () -> fixture.node.box(deleted.box()).isEmpty(), () -> fixture.node.box(deleted.box()));
            }
            fixture.node.at(call, FakeCall.Step.MIDWAY, () -> {});
        }
    }

    // Time.

    @Test
    void a_sandbox_is_killed_at_the_end_of_its_lifetime_where_that_was_agreed() throws Exception {
        Sandbox made = create(KILLED_AFTER_A_MINUTE);
        assertThat(made.expiresAt()).contains(made.createdAt().plusSeconds(60));
        assertThat(fixture.node.box(made.box()).orElseThrow().deadline()).isEqualTo(made.expiresAt());
        fixture.clock.advance(Duration.ofSeconds(59));
        fixture.core().expire();
        assertThat(get(made.id()).state()).isEqualTo(SandboxState.RUNNING);
        fixture.clock.advance(Duration.ofSeconds(1));
        fixture.core().expire();
        Sandbox.End end = get(made.id()).end().orElseThrow();
        assertThat(end.reason()).isEqualTo(EndReason.EXPIRED);
        assertThat(end.detail()).contains("60 s");
        Eventually.until(() -> fixture.node.box(made.box()).isEmpty(), () -> fixture.node.box(made.box()));
    }

    @Test
    void a_sandbox_is_paused_at_the_end_of_its_lifetime_and_lives_as_long_again_after_a_resume() throws Exception {
        Sandbox made = create(PAUSED_AFTER_A_MINUTE);
        assertThat(fixture.node.box(made.box()).orElseThrow().deadline()).isEmpty();
        run(made.id(), "set x 5");
        fixture.clock.advance(Duration.ofMinutes(1));
        fixture.core().expire();
        becomes(made.id(), SandboxState.PAUSED);
        assertThat(get(made.id()).expiresAt()).isEmpty();
        fixture.clock.advance(Duration.ofDays(3));
        fixture.core().expire();
        assertThat(get(made.id()).state()).isEqualTo(SandboxState.PAUSED);
        assertThat(run(made.id(), "get x")).isEqualTo("5");
        assertThat(get(made.id()).expiresAt()).contains(fixture.clock.instant().plusSeconds(60));
    }

    @Test
    void a_lifetime_is_set_anew_by_an_extension() throws Exception {
        Sandbox made = create(KILLED_AFTER_A_MINUTE);
        fixture.clock.advance(Duration.ofSeconds(50));
        Sandbox longer =
                fixture.core().sandboxes().extend(fixture.caller(), made.id(), Term.of(Duration.ofMinutes(10)));
        assertThat(longer.expiresAt()).contains(fixture.clock.instant().plusSeconds(600));
        assertThat(fixture.store.sandbox(made.id())).contains(longer);
        Eventually.until(
                () -> fixture.node.box(made.box()).orElseThrow().deadline().equals(longer.expiresAt()),
                () -> fixture.node.box(made.box()));
        fixture.clock.advance(Duration.ofSeconds(50));
        fixture.core().expire();
        assertThat(get(made.id()).state()).isEqualTo(SandboxState.RUNNING);
        Sandbox unbound = fixture.core().sandboxes().extend(fixture.caller(), made.id(), Term.NONE);
        assertThat(unbound.expiresAt()).isEmpty();
        Eventually.until(
                () -> fixture.node.box(made.box()).orElseThrow().deadline().isEmpty(),
                () -> fixture.node.box(made.box()));
        Sandbox shorter =
                fixture.core().sandboxes().extend(fixture.caller(), made.id(), Term.of(Duration.ofSeconds(1)));
        assertThat(shorter.expiresAt()).contains(fixture.clock.instant().plusSeconds(1));
    }

    @Test
    void a_deadline_that_the_node_could_not_be_told_is_told_later() throws Exception {
        Sandbox made = create(KILLED_AFTER_A_MINUTE);
        fixture.node.failOnce(FakeCall.SET_DEADLINE, FakeCall.Step.BEFORE, failure(ErrorCode.INTERNAL));
        Sandbox longer =
                fixture.core().sandboxes().extend(fixture.caller(), made.id(), Term.of(Duration.ofMinutes(10)));
        Eventually.until(
                () -> {
                    fixture.core().expire();
                    return fixture.node.box(made.box()).orElseThrow().deadline().equals(longer.expiresAt());
                },
                () -> fixture.node.box(made.box()));
    }

    @Test
    void a_paused_sandbox_can_be_extended_and_begins_its_time_with_the_resume() throws Exception {
        Sandbox made = create(KILLED_AFTER_A_MINUTE);
        pause(made.id());
        Sandbox extended =
                fixture.core().sandboxes().extend(fixture.caller(), made.id(), Term.of(Duration.ofMinutes(5)));
        assertThat(extended.state()).isEqualTo(SandboxState.PAUSED);
        assertThat(extended.expiresAt()).isEmpty();
        fixture.clock.advance(Duration.ofHours(1));
        Sandbox resumed = resume(made.id());
        assertThat(resumed.expiresAt()).contains(fixture.clock.instant().plusSeconds(300));
        assertThat(fixture.node.box(made.box()).orElseThrow().deadline()).isEqualTo(resumed.expiresAt());
        pause(made.id());
        Sandbox other = fixture.core()
                .sandboxes()
                .resume(fixture.caller(), made.id(), Optional.of(Term.of(Duration.ofSeconds(7))));
        assertThat(other.expiresAt()).contains(fixture.clock.instant().plusSeconds(7));
        assertThat(other.lifecycle().lifetime()).contains(Duration.ofSeconds(7));
    }

    @Test
    void an_idle_sandbox_is_paused_after_an_hour_by_default() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        assertThat(get(id).lifecycle().idleTimeout()).contains(Duration.ofHours(1));
        fixture.clock.advance(Duration.ofMinutes(59));
        run(id, "set x 5");
        fixture.clock.advance(Duration.ofMinutes(59));
        fixture.core().expire();
        assertThat(get(id).state()).isEqualTo(SandboxState.RUNNING);
        fixture.clock.advance(Duration.ofMinutes(1));
        fixture.core().expire();
        becomes(id, SandboxState.PAUSED);
        assertThat(run(id, "get x")).isEqualTo("5");
    }

    @Test
    void a_sandbox_that_its_runtime_can_not_pause_ends_with_its_lifetime_and_is_let_be_while_idle() throws Exception {
        fixture.node.fail(FakeCall.PAUSE_BOX, FakeCall.Step.BEFORE, failure(ErrorCode.UNSUPPORTED_BY_RUNTIME));
        SandboxId idle = create(LifecycleChanges.NONE).id();
        run(idle, "set x 5");
        SandboxId brief = create(PAUSED_AFTER_A_MINUTE).id();
        fails(ErrorCode.UNSUPPORTED_BY_RUNTIME, () -> pause(idle));
        fixture.clock.advance(Duration.ofHours(3));
        fixture.core().expire();
        becomes(brief, SandboxState.ENDED);
        assertThat(get(brief).end().orElseThrow().reason()).isEqualTo(EndReason.EXPIRED);
        assertThat(run(idle, "get x")).isEqualTo("5");
    }

    @Test
    void an_idle_sandbox_is_killed_where_that_was_agreed() throws Exception {
        SandboxId id = create(new LifecycleChanges(
                        Optional.empty(),
                        Optional.of(Term.of(Duration.ofSeconds(30))),
                        Optional.of(OnTimeout.KILL),
                        Optional.empty()))
                .id();
        fixture.clock.advance(Duration.ofSeconds(30));
        fixture.core().expire();
        assertThat(get(id).end().orElseThrow().reason()).isEqualTo(EndReason.IDLE);
        assertThat(get(id).end().orElseThrow().detail()).contains("30 s");
    }

    @Test
    void code_that_runs_keeps_its_sandbox_from_being_idle_also_over_a_restart() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        try (ExecutionHandle handle =
                fixture.start(CodeExecRequest.of("print a\nwait gate").in(id))) {
            assertThat(handle.next()).isPresent();
        }
        fixture.clock.advance(Duration.ofHours(2));
        fixture.core().expire();
        assertThat(get(id).state()).isEqualTo(SandboxState.RUNNING);
        fixture.clock.advance(Duration.ofHours(2));
        fixture.restart();
        fixture.core().expire();
        assertThat(get(id).state()).isEqualTo(SandboxState.RUNNING);
        fixture.node.open("gate");
        // The end of its use comes after the end that is on record.
        Eventually.until(
                () -> {
                    fixture.clock.advance(Duration.ofMinutes(61));
                    fixture.core().expire();
                    return get(id).state() == SandboxState.PAUSED;
                },
                () -> get(id));
    }

    @Test
    void looking_at_a_sandbox_is_no_use_of_it() throws Exception {
        SandboxId id = create(LifecycleChanges.NONE).id();
        fixture.clock.advance(Duration.ofMinutes(59));
        get(id);
        fixture.core().contexts().list(fixture.caller(), id);
        runs(id);
        fixture.clock.advance(Duration.ofMinutes(1));
        fixture.core().expire();
        becomes(id, SandboxState.PAUSED);
    }

    @Test
    void traffic_on_a_tunnel_is_use() throws Exception {
        Sandbox made = create(LifecycleChanges.NONE);
        fixture.node.portsOf(made.box()).listen(8080, "127.0.0.1");
        try (var tunnel = fixture.core().ports().tunnel(fixture.caller(), made.id(), 8080)) {
            fixture.clock.advance(Duration.ofMinutes(59));
            tunnel.send(java.nio.ByteBuffer.wrap(new byte[] {1}));
            assertThat(get(made.id()).lastActiveAt()).isEqualTo(fixture.clock.instant());
            fixture.clock.advance(Duration.ofMinutes(59));
            fixture.core().expire();
            assertThat(get(made.id()).state()).isEqualTo(SandboxState.RUNNING);
        }
    }

    @Test
    void a_sandbox_that_expired_while_no_server_was_there_is_dealt_with_at_the_start() throws Exception {
        Sandbox killed = create(KILLED_AFTER_A_MINUTE);
        Sandbox paused = create(PAUSED_AFTER_A_MINUTE);
        fixture.clock.advance(Duration.ofMinutes(2));
        fixture.restart();
        becomes(killed.id(), SandboxState.ENDED);
        assertThat(get(killed.id()).end().orElseThrow().reason()).isEqualTo(EndReason.EXPIRED);
        becomes(paused.id(), SandboxState.PAUSED);
    }

    @Test
    void a_pause_at_its_time_that_fails_is_tried_again_a_minute_later() throws Exception {
        SandboxId id = create(PAUSED_AFTER_A_MINUTE).id();
        fixture.clock.advance(Duration.ofMinutes(1));
        FakeNode.Hold hold = fixture.node.hold(FakeCall.PAUSE_BOX, FakeCall.Step.BEFORE);
        fixture.core().expire();
        hold.awaitReached();
        fixture.node.fail(FakeCall.PAUSE_BOX, FakeCall.Step.MIDWAY, failure(ErrorCode.DISK_FULL));
        hold.release();
        becomes(id, SandboxState.RUNNING);
        fixture.node.fail(FakeCall.PAUSE_BOX, FakeCall.Step.MIDWAY, null);
        Eventually.until(
                () -> {
                    fixture.clock.advance(Duration.ofMinutes(1));
                    fixture.core().expire();
                    return get(id).state() == SandboxState.PAUSED;
                },
                () -> get(id));
    }

    @Test
    void a_sandbox_that_was_paused_for_too_long_ends() throws Exception {
        Sandbox made = create(LifecycleChanges.NONE);
        pause(made.id());
        fixture.clock.advance(Duration.ofDays(30).minusSeconds(1));
        fixture.core().expire();
        assertThat(get(made.id()).state()).isEqualTo(SandboxState.PAUSED);
        fixture.clock.advance(Duration.ofSeconds(1));
        fixture.core().expire();
        Sandbox.End end = get(made.id()).end().orElseThrow();
        assertThat(end.reason()).isEqualTo(EndReason.EXPIRED);
        assertThat(end.detail()).contains("30 days");
        Eventually.until(() -> fixture.node.box(made.box()).isEmpty(), () -> fixture.node.box(made.box()));
    }

    @Test
    void a_lifetime_beyond_the_longest_is_refused_and_the_default_is_within() throws Exception {
        try (CoreFixture bounded = new CoreFixture(Map.of("sandboxes.max_lifetime_seconds", "600")).ready()) {
            Sandbox made = bounded.core().sandboxes().create(bounded.caller(), request(LifecycleChanges.NONE));
            assertThat(made.expiresAt()).contains(made.createdAt().plusSeconds(600));
            fails(
                    ErrorCode.INVALID_REQUEST,
                    () -> bounded.core()
                            .sandboxes()
                            .extend(bounded.caller(), made.id(), Term.of(Duration.ofSeconds(601))));
            fails(
                    ErrorCode.INVALID_REQUEST,
                    () -> bounded.core().sandboxes().extend(bounded.caller(), made.id(), Term.NONE));
            LifecycleChanges endless =
                    new LifecycleChanges(Optional.of(Term.NONE), Optional.empty(), Optional.empty(), Optional.empty());
            fails(
                    ErrorCode.INVALID_REQUEST,
                    () -> bounded.core().sandboxes().create(bounded.caller(), request(endless)));
        }
    }

    private static CreateSandbox request(LifecycleChanges lifecycle) {
        return new CreateSandbox(
                Optional.of("python"),
                Optional.empty(),
                Map.of(),
                Map.of(),
                LimitChanges.NONE,
                Optional.empty(),
                Optional.empty(),
                IfExists.FAIL,
                lifecycle,
                Optional.empty(),
                Optional.empty());
    }

    // Updates.

    @Test
    void a_paused_sandbox_is_changed_without_being_resumed() throws Exception {
        Sandbox made = create(LifecycleChanges.NONE);
        pause(made.id());
        LimitChanges cpu = new LimitChanges(
                OptionalLong.empty(),
                OptionalInt.of(900),
                OptionalLong.empty(),
                OptionalInt.empty(),
                OptionalInt.empty());
        Sandbox changed = fixture.core()
                .sandboxes()
                .update(
                        fixture.caller(),
                        made.id(),
                        new UpdateSandbox(
                                cpu,
                                Map.of("a", Optional.of("b")),
                                Optional.of("mine"),
                                new LifecycleChanges(
                                        Optional.empty(),
                                        Optional.of(Term.NONE),
                                        Optional.of(OnTimeout.KILL),
                                        Optional.of(false))));
        assertThat(changed.state()).isEqualTo(SandboxState.PAUSED);
        assertThat(changed.name()).contains("mine");
        assertThat(changed.lifecycle().idleTimeout()).isEmpty();
        assertThat(changed.lifecycle().autoResume()).isFalse();
        assertThat(fixture.store.sandbox(made.id())).contains(changed);
        Sandbox resumed = resume(made.id());
        assertThat(resumed.limits().cpuMillis()).isEqualTo(900);
        assertThat(fixture.node.box(made.box()).orElseThrow().limits()).contains(resumed.limits());
    }

    @Test
    void a_deadline_goes_with_the_action_at_the_end() throws Exception {
        Sandbox made = create(KILLED_AFTER_A_MINUTE);
        LifecycleChanges pause = new LifecycleChanges(
                Optional.empty(), Optional.empty(), Optional.of(OnTimeout.PAUSE), Optional.empty());
        fixture.core()
                .sandboxes()
                .update(
                        fixture.caller(),
                        made.id(),
                        new UpdateSandbox(LimitChanges.NONE, Map.of(), Optional.empty(), pause));
        Eventually.until(
                () -> fixture.node.box(made.box()).orElseThrow().deadline().isEmpty(),
                () -> fixture.node.box(made.box()));
        assertThat(get(made.id()).expiresAt()).isEqualTo(made.expiresAt());
    }

    // Names.

    @Test
    void a_name_belongs_to_one_live_sandbox() throws Exception {
        Sandbox one = create(Optional.of("mine"), IfExists.FAIL, LifecycleChanges.NONE)
                .sandbox();
        assertThatThrownBy(() -> create(Optional.of("mine"), IfExists.FAIL, LifecycleChanges.NONE))
                .isInstanceOfSatisfying(AtollException.class, e -> {
                    assertThat(e.code()).isEqualTo(ErrorCode.CONFLICT);
                    assertThat(e.message()).contains(one.id().toString());
                });
        Created got = create(Optional.of("mine"), IfExists.GET, LifecycleChanges.NONE);
        assertThat(got.got()).isTrue();
        assertThat(got.sandbox().id()).isEqualTo(one.id());
        pause(one.id());
        assertThat(create(Optional.of("mine"), IfExists.GET, LifecycleChanges.NONE)
                        .sandbox()
                        .state())
                .isEqualTo(SandboxState.PAUSED);
        Sandbox other = create(LifecycleChanges.NONE);
        fails(
                ErrorCode.CONFLICT,
                () -> fixture.core()
                        .sandboxes()
                        .update(
                                fixture.caller(),
                                other.id(),
                                new UpdateSandbox(
                                        LimitChanges.NONE, Map.of(), Optional.of("mine"), LifecycleChanges.NONE)));
        fixture.core().sandboxes().delete(fixture.caller(), one.id());
        Created again = create(Optional.of("mine"), IfExists.GET, LifecycleChanges.NONE);
        assertThat(again.got()).isFalse();
        assertThat(again.sandbox().id()).isNotEqualTo(one.id());
    }

    @Test
    void of_many_who_get_or_create_a_name_at_once_one_creates() throws Exception {
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Callable<Created>> calls = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                calls.add(() -> create(Optional.of("mine"), IfExists.GET, LifecycleChanges.NONE));
            }
            Set<SandboxId> ids = new HashSet<>();
            int made = 0;
            for (Future<Created> call : threads.invokeAll(calls)) {
                ids.add(call.get().sandbox().id());
                made += call.get().got() ? 0 : 1;
            }
            assertThat(ids).hasSize(1);
            assertThat(made).isEqualTo(1);
        }
    }

    @Test
    void a_name_outlives_a_restart_of_the_server() throws Exception {
        Sandbox one = create(Optional.of("mine"), IfExists.FAIL, LifecycleChanges.NONE)
                .sandbox();
        fixture.restart();
        assertThat(create(Optional.of("mine"), IfExists.GET, LifecycleChanges.NONE)
                        .sandbox()
                        .id())
                .isEqualTo(one.id());
    }

    @Test
    void paused_sandboxes_leave_room_for_others_and_need_it_again() throws Exception {
        List<Sandbox> made = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            made.add(create(LifecycleChanges.NONE));
        }
        fails(ErrorCode.QUOTA_EXCEEDED, () -> create(LifecycleChanges.NONE));
        pause(made.getFirst().id());
        Sandbox another = create(LifecycleChanges.NONE);
        fails(ErrorCode.QUOTA_EXCEEDED, () -> resume(made.getFirst().id()));
        assertThat(get(made.getFirst().id()).state()).isEqualTo(SandboxState.PAUSED);
        fixture.core().sandboxes().delete(fixture.caller(), another.id());
        assertThat(resume(made.getFirst().id()).state()).isEqualTo(SandboxState.RUNNING);
    }
}
