package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExitReason;
import atoll.core.node.NodeSnapshot;
import atoll.core.sandbox.Context;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.ForkSandbox;
import atoll.core.sandbox.Lifecycle;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.Run;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.SeenContext;
import atoll.core.sandbox.Term;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.snapshot.SnapshotQuery;
import atoll.core.store.IdempotencyClaim;
import atoll.core.template.LimitChanges;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import atoll.core.testing.FakeCall;
import atoll.core.testing.FakeNode.Hold;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ForkTest {
    private CoreFixture fixture =
            new CoreFixture(Map.of("pool.depth", "0", "node.patience_seconds", "20", "sandboxes.max", "20")).ready();

    @AfterEach
    void close() {
        fixture.close();
    }

    private Caller caller() {
        return fixture.caller();
    }

    private Sandbox create() throws Exception {
        return fixture.core()
                .sandboxes()
                .create(
                        caller(),
                        new CreateSandbox(
                                Optional.empty(),
                                Optional.empty(),
                                Map.of("WHO", "source", "WHERE", "here"),
                                Map.of("team", "red", "role", "source"),
                                LimitChanges.NONE,
                                Optional.empty()));
    }

    private List<Sandbox> fork(SandboxId id, ForkSandbox request) throws Exception {
        return fixture.core().forks().fork(caller(), id, request);
    }

    private static ForkSandbox copies(int count) {
        return new ForkSandbox(count, Map.of(), Map.of(), Optional.empty(), LifecycleChanges.NONE, Optional.empty());
    }

    private static ForkSandbox keyed(int count) {
        return new ForkSandbox(count, Map.of(), Map.of(), Optional.empty(), LifecycleChanges.NONE, Optional.of("key"));
    }

    private String run(SandboxId in, String code) throws Exception {
        ExecutionOutcome outcome = fixture.run(CodeExecRequest.of(code).in(in));
        assertThat(outcome.exitReason()).isEqualTo(ExitReason.COMPLETED);
        return outcome.output().text();
    }

    private Sandbox get(SandboxId id) {
        return fixture.core().sandboxes().get(caller(), id);
    }

    private List<Sandbox> all() {
        return fixture.core().sandboxes().list(caller(), SandboxQuery.ALL).items();
    }

    /** Nothing is left of the snapshot that was made for the copies. */
    private void awaitNoFiles() {
        Eventually.until(() -> fixture.node.stored().ids().isEmpty(), fixture.node.stored()::ids);
    }

    @Test
    void a_copy_that_is_ready_just_after_the_boxes_were_listed_is_not_lost() throws Exception {
        Sandbox source = create();
        assertThat(run(source.id(), "set x 1")).isEmpty();
        Hold restore = fixture.node.hold(FakeCall.RESTORE_BOX, FakeCall.Step.BEFORE);
        try (ExecutorService pool = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<List<Sandbox>> made = pool.submit(() -> fork(source.id(), copies(1)));
            restore.awaitReached();
            Hold listed = fixture.node.hold(FakeCall.LIST_BOXES, FakeCall.Step.AFTER);
            fixture.node.goAway();
            fixture.node.comeBack();
            listed.awaitReached();
            restore.release();
            SandboxId copy = made.get().getFirst().id();
            listed.release();
            Eventually.until(() -> fixture.core().status().nodeConnected(), fixture.core()::status);
            assertThat(get(copy).end()).isEmpty();
            assertThat(run(copy, "get x")).isEqualTo("1");
        }
    }

    @Test
    void copies_go_on_where_the_source_is_and_neither_knows_of_the_other() throws Exception {
        Sandbox source = create();
        assertThat(run(source.id(), "set x 1")).isEmpty();
        List<Sandbox> made = fork(source.id(), copies(3));
        assertThat(made).hasSize(3).extracting(Sandbox::state).containsOnly(SandboxState.RUNNING);
        for (Sandbox copy : made) {
            assertThat(run(copy.id(), "get x\nset x 2")).isEqualTo("1");
            assertThat(copy.origin().orElseThrow().sandbox()).contains(source.id());
        }
        assertThat(run(source.id(), "get x")).isEqualTo("1");
        awaitNoFiles();
        // The snapshot was none of the caller's.
        assertThat(fixture.core().snapshots().list(caller(), SnapshotQuery.ALL).items())
                .isEmpty();
    }

    @Test
    void contexts_of_copies_have_ids_of_their_own_and_answer_to_those_of_the_source() throws Exception {
        Sandbox source = create();
        assertThat(run(source.id(), "set x 1")).isEmpty();
        Context context = contexts(source.id()).getFirst();
        Set<ContextId> ids = new HashSet<>(Set.of(context.id()));
        for (Sandbox copy : fork(source.id(), copies(2))) {
            ids.add(contexts(copy.id()).getFirst().id());
            ExecutionOutcome outcome =
                    fixture.run(CodeExecRequest.of("get x").in(copy.id()).in(context.id()));
            assertThat(outcome.output().text()).isEqualTo("1");
        }
        assertThat(ids).hasSize(3);
    }

    private List<Context> contexts(SandboxId of) {
        return fixture.core().contexts().list(caller(), of).stream()
                .map(SeenContext::context)
                .toList();
    }

    @Test
    void a_copy_has_what_the_source_has_but_for_what_is_asked() throws Exception {
        Sandbox source = create();
        ForkSandbox request = new ForkSandbox(
                1,
                Map.of("WHO", "copy"),
                Map.of("role", "copy"),
                Optional.of("the-copy"),
                new LifecycleChanges(
                        Optional.of(Term.of(Duration.ofHours(1))),
                        Optional.empty(),
                        Optional.empty(),
                        Optional.empty()),
                Optional.empty());
        Sandbox copy = fork(source.id(), request).getFirst();
        assertThat(run(copy.id(), "env WHO\nenv WHERE")).isEqualTo("copy\nhere");
        assertThat(copy.labels()).isEqualTo(Map.of("team", "red", "role", "copy"));
        assertThat(copy.name()).contains("the-copy");
        assertThat(copy.limits()).isEqualTo(source.limits());
        Lifecycle agreed = source.lifecycle();
        assertThat(copy.lifecycle()).isEqualTo(agreed.withLifetime(Optional.of(Duration.ofHours(1))));
        assertThat(fixture.core().sandboxes().runs(caller(), copy.id()))
                .extracting(Run::how)
                .containsExactly(Run.How.FORK);
    }

    @Test
    void a_paused_source_stays_paused() throws Exception {
        Sandbox source = create();
        assertThat(run(source.id(), "set x 1")).isEmpty();
        assertThat(fixture.core().sandboxes().pause(caller(), source.id()).state())
                .isEqualTo(SandboxState.PAUSED);
        for (Sandbox copy : fork(source.id(), copies(2))) {
            assertThat(run(copy.id(), "get x")).isEqualTo("1");
        }
        assertThat(get(source.id()).state()).isEqualTo(SandboxState.PAUSED);
        assertThat(run(source.id(), "get x")).isEqualTo("1");
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 3, 6})
    void when_one_restore_fails_no_copy_is_left_and_the_source_goes_on(int failing) throws Exception {
        Sandbox source = create();
        AtomicInteger restores = new AtomicInteger();
        fixture.node.at(FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY, () -> {
            if (restores.incrementAndGet() == failing) {
                throw new AtollException(ErrorCode.NODE_FULL, "no memory left", "", "");
            }
        });
        assertThatThrownBy(() -> fork(source.id(), copies(6))).isInstanceOfSatisfying(AtollException.class, e -> {
            assertThat(e.code()).isEqualTo(ErrorCode.NODE_FULL);
            assertThat(e.message()).contains("of 6").contains("no memory left");
        });
        assertThat(all().stream().filter(sandbox -> sandbox.end().isEmpty()).map(Sandbox::id))
                .containsExactly(source.id());
        Eventually.until(() -> fixture.node.liveBoxes() == 1, fixture.node::boxes);
        awaitNoFiles();
        assertThat(run(source.id(), "print x")).isEqualTo("x");
    }

    @Test
    void when_the_snapshot_fails_nothing_is_made() throws Exception {
        Sandbox source = create();
        fixture.node.setDisk(1L << 30, 0);
        assertThatThrownBy(() -> fork(source.id(), copies(2)))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.DISK_FULL));
        assertThat(all()).hasSize(1);
        assertThat(run(source.id(), "print x")).isEqualTo("x");
    }

    @Test
    void restores_at_once_are_bounded() throws Exception {
        Sandbox source = create();
        Hold hold = fixture.node.hold(FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY);
        int most = Runtime.getRuntime().availableProcessors() + 1;
        int count = Math.min(19, 2 * most);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<List<Sandbox>> call = threads.submit(() -> fork(source.id(), copies(count)));
            Eventually.until(() -> hold.reached() == Math.min(most, count), hold::reached);
            // Whoever forks holds nobody up: the source is locked for its snapshot only.
            assertThat(fixture.core().sandboxes().pause(caller(), source.id()).state())
                    .isEqualTo(SandboxState.PAUSED);
            hold.release();
            assertThat(call.get()).hasSize(count);
        }
        assertThat(fixture.node.stored().mostRestoresAtOnce()).isLessThanOrEqualTo(most);
    }

    @Test
    void copies_count_as_sandboxes_before_any_is_made() throws Exception {
        Sandbox source = create();
        assertThatThrownBy(() -> fork(source.id(), copies(20)))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.QUOTA_EXCEEDED));
        assertThat(all()).hasSize(1);
        assertThat(fork(source.id(), copies(19))).hasSize(19);
    }

    @Test
    void forks_at_the_same_time_get_no_more_together_than_there_is_room_for() throws Exception {
        Sandbox source = create();
        Sandbox other = create();
        Hold hold = fixture.node.hold(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.MIDWAY);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<List<Sandbox>> first = threads.submit(() -> fork(source.id(), copies(10)));
            hold.awaitReached();
            assertThatThrownBy(() -> fork(other.id(), copies(9)))
                    .isInstanceOfSatisfying(
                            AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.QUOTA_EXCEEDED));
            Future<List<Sandbox>> second = threads.submit(() -> fork(other.id(), copies(8)));
            Eventually.until(() -> hold.reached() == 2, hold::reached);
            assertThatThrownBy(this::create)
                    .isInstanceOfSatisfying(
                            AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.QUOTA_EXCEEDED));
            hold.release();
            assertThat(first.get()).hasSize(10);
            assertThat(second.get()).hasSize(8);
        }
        // What a fork did not use is free again.
        fixture.core().sandboxes().delete(caller(), source.id());
        fixture.core().sandboxes().delete(caller(), other.id());
        assertThat(fork(create().id(), copies(1))).hasSize(1);
    }

    @Test
    void a_fork_that_failed_leaves_its_room_to_others() throws Exception {
        Sandbox source = create();
        fixture.node.at(FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY, () -> {
            throw new AtollException(ErrorCode.DISK_FULL, "full", "", "");
        });
        for (int round = 0; round < 2; round++) {
            assertThatThrownBy(() -> fork(source.id(), copies(19)))
                    .isInstanceOfSatisfying(
                            AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.DISK_FULL));
        }
        fixture.node.at(FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY, () -> {});
        assertThat(fork(source.id(), copies(19))).hasSize(19);
    }

    @Test
    void the_same_key_gets_the_same_copies_and_another_request_is_refused() throws Exception {
        Sandbox source = create();
        List<Sandbox> first = fork(source.id(), keyed(3));
        assertThat(fork(source.id(), keyed(3))).extracting(Sandbox::id).isEqualTo(ids(first));
        assertThatThrownBy(() -> fork(source.id(), keyed(2)))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.CONFLICT));
        fixture.restart();
        assertThat(fork(source.id(), keyed(3))).extracting(Sandbox::id).isEqualTo(ids(first));
        assertThat(all()).hasSize(4);
    }

    private static List<SandboxId> ids(List<Sandbox> sandboxes) {
        return sandboxes.stream().map(Sandbox::id).toList();
    }

    @Test
    void a_fork_that_failed_is_tried_again_with_the_same_key() throws Exception {
        Sandbox source = create();
        AtomicInteger restores = new AtomicInteger();
        fixture.node.at(FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY, () -> {
            if (restores.incrementAndGet() == 2) {
                throw new AtollException(ErrorCode.INTERNAL, "it broke", "", "");
            }
        });
        assertThatThrownBy(() -> fork(source.id(), keyed(3))).isInstanceOf(AtollException.class);
        List<Sandbox> made = fork(source.id(), keyed(3));
        assertThat(made).extracting(Sandbox::state).containsOnly(SandboxState.RUNNING);
        assertThat(fork(source.id(), keyed(3))).extracting(Sandbox::id).isEqualTo(ids(made));
    }

    @Test
    void a_caller_who_leaves_gets_no_copies() throws Exception {
        Sandbox source = create();
        Hold hold = fixture.node.hold(FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<List<Sandbox>> call = threads.submit(() -> fork(source.id(), copies(4)));
            hold.awaitReached();
            assertThat(call.cancel(true)).isTrue();
            hold.release();
        }
        Eventually.until(
                () -> all().stream().filter(sandbox -> sandbox.end().isEmpty()).count() == 1, this::all);
        Eventually.until(() -> fixture.node.liveBoxes() == 1, fixture.node::boxes);
        awaitNoFiles();
    }

    /** As a crash leaves it: all copies are there, the snapshot of the fork is too. */
    private List<Sandbox> cutOff(Sandbox source, boolean told) throws Exception {
        Hold kept = fixture.node.hold(FakeCall.DELETE_SNAPSHOT, FakeCall.Step.BEFORE);
        List<Sandbox> made = fork(source.id(), copies(2));
        kept.awaitReached();
        if (!told) {
            // The claim of the outcome is the last thing that a fork does: another store knows nothing of it.
            NodeSnapshot file = fixture.node.snapshots().getFirst();
            fixture.node.fail(FakeCall.DELETE_SNAPSHOT, FakeCall.Step.BEFORE, null);
            SnapshotId again = made.getFirst().origin().orElseThrow().snapshot().orElseThrow();
            assertThat(file.id()).isEqualTo(again);
            fixture.node.deleteSnapshot(again);
            String other = "another try";
            NodeSnapshot unfinished = fixture.node.createSnapshot(
                    source.box(),
                    again,
                    SnapshotKind.MEMORY,
                    Map.of("atoll.fork.project", source.project().toString(), "atoll.fork.try", other));
            assertThat(unfinished.id()).isEqualTo(again);
        }
        fixture.restart();
        fixture.node.fail(FakeCall.DELETE_SNAPSHOT, FakeCall.Step.BEFORE, null);
        kept.release();
        return made;
    }

    @Test
    void copies_of_a_fork_that_a_crash_cut_off_end() throws Exception {
        Sandbox source = create();
        List<Sandbox> made = cutOff(source, false);
        for (Sandbox copy : made) {
            assertThat(get(copy.id()).end()).map(Sandbox.End::reason).contains(EndReason.START_FAILED);
        }
        awaitNoFiles();
        assertThat(run(source.id(), "print x")).isEqualTo("x");
        // And it stays undone, whoever asks.
        assertThat(fixture.store
                        .claim(
                                source.project(),
                                new IdempotencyClaim("fork_outcome", "another try", "", "done"),
                                fixture.clock.instant())
                        .resultId())
                .isEqualTo("undone");
    }

    @Test
    void copies_of_a_fork_that_was_answered_stay_though_its_snapshot_was_left() throws Exception {
        Sandbox source = create();
        List<Sandbox> made = cutOff(source, true);
        for (Sandbox copy : made) {
            assertThat(run(copy.id(), "print x")).isEqualTo("x");
        }
    }
}
