package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionQuery;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExecutionUpdate;
import atoll.core.execution.ExitReason;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.SandboxState;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class CodeExecutionTest {
    private final CoreFixture fixture = new CoreFixture(Map.of("node.patience_seconds", "20")).ready();

    @AfterEach
    void close() {
        fixture.close();
    }

    private static AtollException fails(ErrorCode code, ThrowingCallable call) {
        List<AtollException> thrown = new ArrayList<>();
        assertThatThrownBy(call).isInstanceOfSatisfying(AtollException.class, thrown::add);
        assertThat(thrown.getFirst().code()).isEqualTo(code);
        return thrown.getFirst();
    }

    @Test
    void code_without_a_sandbox_gets_one_of_the_default_template() throws Exception {
        ExecutionOutcome outcome = fixture.run("print 2");
        assertThat(outcome.output().text()).isEqualTo("2");
        assertThat(outcome.stdout().text()).isEqualTo("2\n");
        assertThat(outcome.exitReason()).isEqualTo(ExitReason.COMPLETED);
        assertThat(outcome.sandboxId().toString()).startsWith("sb-exec-");
        assertThat(fixture.core()
                        .sandboxes()
                        .get(fixture.caller(), outcome.sandboxId())
                        .template())
                .isEqualTo("typescript-bun");
    }

    @Test
    void state_is_there_on_the_next_call() throws Exception {
        ExecutionOutcome first = fixture.run("set x 2");
        ExecutionOutcome second = fixture.run(CodeExecRequest.of("get x").in(first.sandboxId()));
        assertThat(second.output().text()).isEqualTo("2");
        assertThat(second.contextId()).isEqualTo(first.contextId());
    }

    @Test
    void executions_are_counted_in_their_context_over_restarts_too() throws Exception {
        ExecutionOutcome first;
        try (ExecutionHandle one = fixture.start(CodeExecRequest.of("print 1"))) {
            assertThat(one.number()).hasValue(1);
            first = one.await();
        }
        for (long expected = 2; expected < 6; expected++) {
            try (ExecutionHandle next =
                    fixture.start(CodeExecRequest.of("print 1").in(first.sandboxId()))) {
                assertThat(next.number()).hasValue(expected);
                assertThat(next.await().exitReason()).isEqualTo(ExitReason.COMPLETED);
            }
            if (expected == 3) {
                fixture.clock.advance(Duration.ofSeconds(1));
                fixture.restart();
            }
        }
        try (ExecutionHandle other = fixture.start(
                CodeExecRequest.of("print 1").in(first.sandboxId()).withLanguage("bash"))) {
            assertThat(other.number()).hasValue(1);
        }
    }

    @Test
    void sandboxes_never_see_each_other() throws Exception {
        assertThat(fixture.run("set x 2").exitReason()).isEqualTo(ExitReason.COMPLETED);
        assertThat(fixture.run("get x").output().text()).isEqualTo("undefined");
    }

    @Test
    void a_language_picks_its_template() throws Exception {
        ExecutionOutcome outcome = fixture.run(CodeExecRequest.of("print hi").withLanguage("py"));
        assertThat(fixture.core()
                        .sandboxes()
                        .get(fixture.caller(), outcome.sandboxId())
                        .template())
                .isEqualTo("python");
    }

    @Test
    void bash_runs_in_the_default_template_beside_its_own_language() throws Exception {
        ExecutionOutcome bash = fixture.run(CodeExecRequest.of("set x 1").withLanguage("sh"));
        ExecutionOutcome own = fixture.run(CodeExecRequest.of("get x").in(bash.sandboxId()));
        ExecutionOutcome again =
                fixture.run(CodeExecRequest.of("get x").in(bash.sandboxId()).withLanguage("bash"));
        assertThat(own.contextId()).isNotEqualTo(bash.contextId());
        assertThat(own.output().text()).isEqualTo("undefined");
        assertThat(again.contextId()).isEqualTo(bash.contextId());
        assertThat(again.output().text()).isEqualTo("1");
    }

    @Test
    void a_context_is_opened_once_for_many_callers() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        List<Callable<ContextId>> calls = new ArrayList<>();
        for (int i = 0; i < 16; i++) {
            calls.add(() -> fixture.run(CodeExecRequest.of("print").in(sandbox).withLanguage("bash"))
                    .contextId());
        }
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Set<ContextId> contexts = new HashSet<>();
            for (Future<ContextId> call : threads.invokeAll(calls)) {
                contexts.add(call.get());
            }
            assertThat(contexts).hasSize(1);
        }
        assertThat(fixture.core().contexts().list(fixture.caller(), sandbox)).hasSize(2);
    }

    @Test
    void a_language_that_the_template_lacks_names_those_it_has() throws Exception {
        SandboxId sandbox = fixture.run("print").sandboxId();
        AtollException e = fails(
                ErrorCode.LANGUAGE_UNAVAILABLE,
                () -> fixture.run(CodeExecRequest.of("print").in(sandbox).withLanguage("python")));
        assertThat(e.message()).contains("typescript, bash");
        assertThat(e.remediation()).contains("python");
    }

    @Test
    void unknown_names_are_told_with_what_there_is() {
        assertThat(fails(
                                ErrorCode.TEMPLATE_NOT_FOUND,
                                () -> fixture.run(CodeExecRequest.of("").withTemplate("perl")))
                        .message())
                .contains("perl", "python", "typescript-bun");
        assertThat(fails(
                                ErrorCode.LANGUAGE_NOT_FOUND,
                                () -> fixture.run(CodeExecRequest.of("").withLanguage("cobol")))
                        .message())
                .contains("cobol", "python");
        assertThat(fails(
                                ErrorCode.SANDBOX_NOT_FOUND,
                                () -> fixture.run(CodeExecRequest.of("").in(SandboxId.random())))
                        .remediation())
                .contains("new sandbox");
    }

    @Test
    void a_context_of_another_sandbox_is_not_found() throws Exception {
        ExecutionOutcome one = fixture.run("print");
        ExecutionOutcome other = fixture.run("print");
        fails(
                ErrorCode.CONTEXT_NOT_FOUND,
                () -> fixture.run(CodeExecRequest.of("").in(one.sandboxId()).in(other.contextId())));
    }

    @Test
    void another_projects_sandbox_does_not_exist() throws Exception {
        ExecutionOutcome mine = fixture.run("print");
        Caller stranger = new Caller(ProjectId.random(), KeyId.random(), Set.of(Scope.values()));
        fails(
                ErrorCode.SANDBOX_NOT_FOUND,
                () -> fixture.core()
                        .codeExecution()
                        .start(stranger, CodeExecRequest.of("").in(mine.sandboxId())));
        fails(ErrorCode.SANDBOX_NOT_FOUND, () -> fixture.core().sandboxes().delete(stranger, mine.sandboxId()));
        fails(ErrorCode.EXECUTION_NOT_FOUND, () -> fixture.core().executions().get(stranger, mine.executionId()));
    }

    @Test
    void a_key_without_the_scope_may_not_run_code() {
        Caller reader = new Caller(ProjectId.DEFAULT, KeyId.random(), Set.of(Scope.READ));
        fails(ErrorCode.FORBIDDEN, () -> fixture.core().codeExecution().start(reader, CodeExecRequest.of("")));
    }

    @Test
    void a_wrong_key_is_refused() {
        fails(ErrorCode.UNAUTHENTICATED, () -> fixture.core().keys().authenticate("wrong"));
        fails(ErrorCode.UNAUTHENTICATED, () -> fixture.core().keys().authenticate(""));
    }

    @Test
    void the_value_of_the_last_expression_ends_the_output() throws Exception {
        assertThat(fixture.run("print one\nerr two\nshow 3").output().text()).isEqualTo("one\ntwo\n3");
    }

    @Test
    void a_person_sees_the_traceback() throws Exception {
        ExecutionOutcome outcome = fixture.run("print before\nraise ValueError no");
        assertThat(outcome.output().text()).isEqualTo("before\nTraceback\nValueError: no");
        assertThat(outcome.error().orElseThrow().message()).isEqualTo("no");
        assertThat(outcome.stderr().text()).isEmpty();
    }

    @Test
    void updates_come_while_the_code_runs() throws Exception {
        try (ExecutionHandle handle = fixture.start(CodeExecRequest.of("print a\nwait gate\nprint b"))) {
            assertThat(handle.next().orElseThrow()).isInstanceOf(ExecutionUpdate.Output.class);
            fixture.node.open("gate");
            assertThat(handle.next().orElseThrow()).isInstanceOf(ExecutionUpdate.Output.class);
            assertThat(handle.next().orElseThrow())
                    .isInstanceOfSatisfying(
                            ExecutionUpdate.Finished.class,
                            end -> assertThat(end.outcome().output().text()).isEqualTo("a\nb"));
            assertThat(handle.next()).isEmpty();
        }
    }

    @Test
    void a_caller_that_leaves_ends_nothing() throws Exception {
        ExecutionHandle handle = fixture.start(CodeExecRequest.of("print a\nwait gate\nprint b"));
        handle.close();
        assertThat(handle.next()).isEmpty();
        fixture.node.open("gate");
        assertThat(recorded(handle.executionId()).output().text()).isEqualTo("a\nb");
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
    void an_execution_is_on_record_while_it_runs_and_after() throws Exception {
        ExecutionHandle handle = fixture.start(CodeExecRequest.of("wait gate\nprint x"));
        ExecutionRecord running = fixture.core().executions().get(fixture.caller(), handle.executionId());
        assertThat(running.outcome()).isEmpty();
        assertThat(running.code()).isEqualTo("wait gate\nprint x");
        fixture.node.open("gate");
        assertThat(handle.await().exitReason()).isEqualTo(ExitReason.COMPLETED);
        assertThat(recorded(handle.executionId()).stdout().text()).isEqualTo("x\n");
        assertThat(fixture.core()
                        .executions()
                        .list(fixture.caller(), ExecutionQuery.ALL)
                        .items())
                .extracting(ExecutionRecord::id)
                .containsExactly(handle.executionId());
    }

    @Test
    void the_node_is_told_what_is_on_record() throws Exception {
        assertThat(fixture.run("print").exitReason()).isEqualTo(ExitReason.COMPLETED);
        Eventually.until(() -> fixture.node.unacknowledged() == 0, fixture.node::unacknowledged);
    }

    @Test
    void an_execution_can_be_followed_by_another_and_replayed() throws Exception {
        ExecutionHandle first = fixture.start(CodeExecRequest.of("print a\nwait gate"));
        ExecutionHandle second = fixture.core().executions().attach(fixture.caller(), first.executionId());
        assertThat(second.next()).isPresent();
        fixture.node.open("gate");
        assertThat(first.await().output().text()).isEqualTo("a");
        assertThat(second.await().output().text()).isEqualTo("a");
        ExecutionHandle replay = fixture.core().executions().attach(fixture.caller(), first.executionId());
        assertThat(replay.await().output().text()).isEqualTo("a");
    }

    private String outputOf(ExecutionId id, StandardStream stream, long offset) throws InterruptedException {
        StringBuilder text = new StringBuilder();
        try (OutputReader reader = fixture.core().executions().read(fixture.caller(), id, stream, offset, false)) {
            Optional<OutputReader.Piece> piece = reader.next();
            while (piece.isPresent()) {
                text.append(StandardCharsets.UTF_8.decode(piece.get().data()));
                piece = reader.next();
            }
        }
        return text.toString();
    }

    @Test
    void output_that_is_whole_on_record_is_read_without_the_node() throws Exception {
        ExecutionOutcome outcome = fixture.run("print hello\nprint \0world\nshow 2");
        ExecutionId id = outcome.executionId();
        Eventually.until(() -> !fixture.node.remembers(id), () -> id);
        assertThat(outputOf(id, StandardStream.STDOUT, 0)).isEqualTo("hello\n\0world\n");
        assertThat(outputOf(id, StandardStream.STDOUT, 6)).isEqualTo("\0world\n");
        assertThat(outputOf(id, StandardStream.STDOUT, 100)).isEmpty();
        assertThat(outputOf(id, StandardStream.STDERR, 0)).isEmpty();
        ExecutionOutcome replayed =
                fixture.core().executions().attach(fixture.caller(), id).await();
        assertThat(replayed).usingRecursiveComparison().isEqualTo(outcome);
    }

    @Test
    void output_is_read_and_followed_from_before_the_node_knows_of_the_execution() throws Exception {
        fixture.node.delayStarts(true);
        ExecutionHandle running = fixture.start(CodeExecRequest.of("print a\nerr b\nwait gate\nprint c"));
        ExecutionId id = running.executionId();
        try (ExecutorService callers = Executors.newVirtualThreadPerTaskExecutor();
                OutputReader reader =
                        fixture.core().executions().read(fixture.caller(), id, StandardStream.STDOUT, 0, true)) {
            Future<Optional<OutputReader.Piece>> first = callers.submit(reader::next);
            Future<ExecutionOutcome> followed = callers.submit(() -> {
                try (ExecutionHandle other = fixture.core().executions().attach(fixture.caller(), id)) {
                    return other.await();
                }
            });
            fixture.node.delayStarts(false);
            assertThat(first.get().orElseThrow().data().remaining()).isEqualTo(2);
            fixture.node.open("gate");
            assertThat(followed.get().output().text()).isEqualTo("a\nb\nc");
        }
        assertThat(running.await().exitReason()).isEqualTo(ExitReason.COMPLETED);
    }

    @Test
    void the_node_keeps_output_that_the_record_can_not_give_back() throws Exception {
        for (String code :
                List.of("print a\nerr b", "print \ufffd", "show 1\nprint after", "print " + "x".repeat(200_000))) {
            ExecutionId id = fixture.run(code).executionId();
            Eventually.until(() -> fixture.node.unacknowledged() == 0, fixture.node::unacknowledged);
            boolean kept = fixture.node.remembers(id);
            assertThat(kept).as(code.substring(0, 6)).isEqualTo(!code.startsWith("show"));
            assertThat(outputOf(id, StandardStream.STDOUT, 0)).isNotEmpty();
        }
    }

    @Test
    void an_interrupt_ends_the_code() throws Exception {
        ExecutionHandle handle = fixture.start(CodeExecRequest.of("print a\nwait never"));
        assertThat(handle.next()).isPresent();
        handle.interrupt();
        ExecutionOutcome outcome = handle.await();
        assertThat(outcome.exitReason()).isEqualTo(ExitReason.INTERRUPTED);
        assertThat(outcome.output().text()).isEqualTo("a");
    }

    @Test
    void an_interrupt_that_is_quicker_than_the_start_is_not_lost() throws Exception {
        fixture.node.delayStarts(true);
        ExecutionHandle byHandle = fixture.start(CodeExecRequest.of("wait never"));
        ExecutionHandle byId = fixture.start(CodeExecRequest.of("wait never"));
        byHandle.interrupt();
        fixture.core().executions().interrupt(fixture.caller(), byId.executionId());
        fixture.node.delayStarts(false);
        assertThat(byHandle.await().exitReason()).isEqualTo(ExitReason.INTERRUPTED);
        assertThat(byId.await().exitReason()).isEqualTo(ExitReason.INTERRUPTED);
    }

    @Test
    void a_timeout_above_the_maximum_is_refused() {
        fails(
                ErrorCode.INVALID_REQUEST,
                () -> fixture.run(CodeExecRequest.of("").withTimeout(Duration.ofDays(2))));
    }

    @Test
    void the_same_key_gives_the_same_execution() throws Exception {
        CodeExecRequest request = CodeExecRequest.of("print once").withIdempotencyKey("k1");
        ExecutionOutcome first = fixture.run(request);
        ExecutionOutcome second = fixture.run(request);
        assertThat(second.executionId()).isEqualTo(first.executionId());
        assertThat(second.sandboxId()).isEqualTo(first.sandboxId());
        assertThat(second.output().text()).isEqualTo("once");
    }

    @Test
    void the_same_key_with_another_request_is_a_conflict() throws Exception {
        assertThat(fixture.run(CodeExecRequest.of("print a").withIdempotencyKey("k")))
                .isNotNull();
        fails(
                ErrorCode.CONFLICT,
                () -> fixture.run(CodeExecRequest.of("print b").withIdempotencyKey("k")));
    }

    @Test
    void simultaneous_requests_with_one_key_run_once() throws Exception {
        CodeExecRequest request = CodeExecRequest.of("print once").withIdempotencyKey("k");
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Callable<ExecutionId>> calls = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                calls.add(() -> fixture.run(request).executionId());
            }
            Set<ExecutionId> ids = new HashSet<>();
            for (Future<ExecutionId> call : threads.invokeAll(calls)) {
                ids.add(call.get());
            }
            assertThat(ids).hasSize(1);
        }
    }

    @Test
    void a_deleted_sandbox_says_so_and_who_did_it() throws Exception {
        ExecutionOutcome outcome = fixture.run("print");
        assertThat(fixture.core()
                        .sandboxes()
                        .delete(fixture.caller(), outcome.sandboxId())
                        .state())
                .isEqualTo(SandboxState.ENDED);
        assertThat(fixture.core()
                        .sandboxes()
                        .delete(fixture.caller(), outcome.sandboxId())
                        .state())
                .isEqualTo(SandboxState.ENDED);
        AtollException e = fails(
                ErrorCode.SANDBOX_ENDED,
                () -> fixture.run(CodeExecRequest.of("").in(outcome.sandboxId())));
        assertThat(e.message()).contains("deleted", "Deleted by key key-");
    }

    @Test
    void deleting_ends_what_runs_in_it_with_that_reason() throws Exception {
        ExecutionHandle handle = fixture.start(CodeExecRequest.of("print a\nwait never"));
        assertThat(handle.next()).isPresent();
        assertThat(fixture.core()
                        .sandboxes()
                        .delete(fixture.caller(), handle.sandboxId())
                        .end())
                .isPresent();
        ExecutionOutcome outcome = handle.await();
        assertThat(outcome.exitReason()).isEqualTo(ExitReason.SANDBOX_ENDED);
        assertThat(outcome.output().text()).isEqualTo("a");
    }

    @Test
    void a_box_that_ends_takes_its_sandbox_along_with_the_reason() throws Exception {
        ExecutionOutcome outcome = fixture.run("print");
        BoxId box = fixture.core()
                .sandboxes()
                .get(fixture.caller(), outcome.sandboxId())
                .box();
        fixture.node.end(box, EndReason.OUT_OF_MEMORY, "limit 256 MiB, peak 255.9 MiB");
        Eventually.until(
                () -> fixture.core()
                                .sandboxes()
                                .get(fixture.caller(), outcome.sandboxId())
                                .state()
                        == SandboxState.ENDED,
                () -> fixture.core().status());
        AtollException e = fails(
                ErrorCode.SANDBOX_ENDED,
                () -> fixture.run(CodeExecRequest.of("").in(outcome.sandboxId())));
        assertThat(e.message()).contains("out_of_memory", "peak 255.9 MiB");
        Eventually.until(() -> fixture.node.box(box).isEmpty(), fixture.node::boxes);
    }

    @Test
    void code_that_breaks_its_sandbox_learns_how_it_ended() throws Exception {
        ExecutionOutcome outcome = fixture.run("print a\ndie");
        assertThat(outcome.exitReason()).isEqualTo(ExitReason.SANDBOX_ENDED);
        assertThat(outcome.stateKept()).isFalse();
        assertThat(outcome.output().text()).isEqualTo("a");
    }

    @Test
    void an_engine_restart_goes_unnoticed() throws Exception {
        ExecutionHandle handle = fixture.start(CodeExecRequest.of("print a\nwait one\nprint b\nwait two\nprint c"));
        assertThat(handle.next()).isPresent();
        fixture.node.goAway();
        fixture.node.open("one");
        Thread back = Thread.ofVirtual().unstarted(() -> {
            Eventually.until(() -> !fixture.core().status().nodeConnected(), fixture.core()::status);
            fixture.node.comeBack();
            fixture.node.open("two");
        });
        back.start();
        assertThat(handle.await().stdout().text()).isEqualTo("a\nb\nc\n");
        back.join();
    }

    @Test
    void a_call_made_while_the_engine_is_away_waits_for_it() throws Exception {
        SandboxId sandbox = fixture.run("set x 1").sandboxId();
        fixture.node.goAway();
        Thread back = Thread.ofVirtual().unstarted(() -> {
            Eventually.until(() -> !fixture.core().status().nodeConnected(), fixture.core()::status);
            fixture.node.comeBack();
        });
        back.start();
        assertThat(fixture.run(CodeExecRequest.of("get x").in(sandbox)).output().text())
                .isEqualTo("1");
        back.join();
    }

    @Test
    void fifty_sandboxes_at_once_stay_apart() throws Exception {
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Callable<Optional<String>>> calls = new ArrayList<>();
            for (int i = 0; i < 50; i++) {
                String mine = "value" + i;
                calls.add(() -> {
                    SandboxId sandbox = fixture.run("set x " + mine).sandboxId();
                    String seen = fixture.run(CodeExecRequest.of("get x").in(sandbox))
                            .output()
                            .text();
                    return seen.equals(mine) ? Optional.empty() : Optional.of(mine + " became " + seen);
                });
            }
            for (Future<Optional<String>> call : threads.invokeAll(calls)) {
                assertThat(call.get()).isEmpty();
            }
        }
    }
}
