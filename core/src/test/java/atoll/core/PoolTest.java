package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.ServerStatus.PoolStatus;
import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.node.Box;
import atoll.core.node.BoxState;
import atoll.core.node.Image;
import atoll.core.node.NodeSnapshot;
import atoll.core.sandbox.EndReason;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import atoll.core.testing.FakeCall;
import atoll.core.testing.FakeNode.Hold;
import java.util.ArrayList;
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

class PoolTest {
    private static final Map<String, String> FOUR_BUN = Map.of(
            "pool.depth", "0",
            "pool.depth.typescript-bun", "4",
            "pool.max_depth", "4",
            "pool.max_prepared", "1",
            "pool.starts", "3",
            "node.patience_seconds", "5");

    private CoreFixture fixture = new CoreFixture(FOUR_BUN).ready().full();

    @AfterEach
    void close() {
        fixture.close();
    }

    private PoolStatus pool(String template) {
        return fixture.core().status().pools().stream()
                .filter(status -> status.template().equals(template))
                .findFirst()
                .orElseThrow();
    }

    private PoolStatus pool() {
        return pool("typescript-bun");
    }

    /** Boxes made so far, however that was. */
    private int made() {
        return fixture.node.started() + fixture.node.stored().restored();
    }

    private Hold holdRestores() {
        return fixture.node.hold(FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY);
    }

    @Test
    void a_pool_fills_itself_and_no_further() {
        assertThat(made()).isEqualTo(4);
        assertThat(pool().ready()).isEqualTo(4);
    }

    @Test
    void the_first_box_is_started_and_all_others_are_restored_from_its_snapshot() throws Exception {
        assertThat(pool().starts()).isEqualTo(Map.of("started", 1L, "restored", 3L));
        assertThat(pool().golden().orElseThrow().sizeBytes()).isEqualTo(1 << 20);
        Set<ContextId> contexts = new HashSet<>();
        for (int i = 0; i < 4; i++) {
            contexts.add(fixture.run("print x").contextId());
        }
        assertThat(contexts).hasSize(4);
    }

    @Test
    void a_taken_box_is_replaced_in_the_background() throws Exception {
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        assertThat(pool().hits()).isEqualTo(1);
        fixture.full();
        assertThat(made()).isEqualTo(5);
    }

    @Test
    void without_a_pool_a_sandbox_is_started_from_nothing() throws Exception {
        ExecutionOutcome outcome = fixture.run(CodeExecRequest.of("print x").withLanguage("python"));
        assertThat(outcome.output().text()).isEqualTo("x");
        assertThat(pool("python").misses()).isEqualTo(Map.of("disabled", 1L));
        assertThat(pool("python").ready()).isZero();
    }

    @Test
    void twenty_at_once_are_all_served_with_bounded_starts() throws Exception {
        Hold hold = holdRestores();
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Future<ExecutionOutcome>> calls = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                calls.add(threads.submit(() -> fixture.run("print x")));
            }
            Eventually.until(() -> pool().starting() >= 16 && pool().hits() == 4, this::pool);
            Eventually.until(() -> hold.reached() == 3, hold::reached);
            hold.release();
            Set<SandboxId> sandboxes = new HashSet<>();
            for (Future<ExecutionOutcome> call : calls) {
                sandboxes.add(call.get().sandboxId());
            }
            assertThat(sandboxes).hasSize(20);
        }
        assertThat(fixture.node.stored().mostRestoresAtOnce()).isLessThanOrEqualTo(3);
        fixture.full();
        assertThat(made()).isEqualTo(24);
        Eventually.until(() -> fixture.node.liveBoxes() == 24 + pool().prepared(), fixture.node::boxes);
    }

    @Test
    void a_box_on_its_way_for_the_stock_goes_to_a_caller_who_waits() throws Exception {
        Hold hold = holdRestores();
        for (int i = 0; i < 4; i++) {
            assertThat(fixture.run("print x").exitReason().text()).isEqualTo("completed");
        }
        Eventually.until(() -> pool().starting() == 4, this::pool);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<ExecutionOutcome> call = threads.submit(() -> fixture.run("print y"));
            Eventually.until(() -> pool().misses().size() == 1, this::pool);
            assertThat(pool().starting()).isEqualTo(4);
            hold.release();
            assertThat(call.get().output().text()).isEqualTo("y");
        }
        fixture.full();
        assertThat(made()).isEqualTo(9);
    }

    @Test
    void a_box_that_died_in_the_pool_is_noticed_and_replaced() {
        Box first = fixture.node.boxes().getFirst();
        fixture.node.end(first.id(), EndReason.CRASHED, "it broke");
        Eventually.until(() -> fixture.node.box(first.id()).isEmpty(), fixture.node::boxes);
        fixture.full();
        assertThat(fixture.node.boxes()).extracting(Box::id).doesNotContain(first.id());
    }

    @Test
    void a_start_that_fails_is_told_to_its_caller_and_the_pool_heals() throws Exception {
        fixture.node.fail(
                FakeCall.RESTORE_BOX,
                FakeCall.Step.MIDWAY,
                new AtollException(ErrorCode.NODE_FULL, "no memory left", "", ""));
        for (int i = 0; i < 4; i++) {
            assertThat(fixture.run("print x").exitReason().text()).isEqualTo("completed");
        }
        assertThatThrownBy(() -> fixture.run("print x"))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.NODE_FULL));
        assertThat(pool().lastFailure()).contains("no memory left");
        // That says nothing about the snapshot.
        assertThat(pool().restoreFailures()).isEmpty();
        fixture.node.fail(FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY, null);
        fixture.full();
        assertThat(pool().lastFailure()).isEmpty();
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
    }

    @Test
    void a_restore_that_fails_is_made_up_for_by_a_start() throws Exception {
        SnapshotId golden = pool().golden().orElseThrow().id();
        fixture.node.failOnce(
                FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY, new AtollException(ErrorCode.INTERNAL, "it broke", "", ""));
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        Eventually.until(() -> pool().ready() == 4, this::pool);
        assertThat(pool().restoreFailures()).isEqualTo(Map.of("internal", 1L));
        assertThat(pool().starts()).containsEntry("started", 2L);
        assertThat(pool().golden()).map(PoolStatus.Golden::id).contains(golden);
        assertThat(pool().lastFailure()).isEmpty();
    }

    @Test
    void a_snapshot_whose_restores_fail_again_and_again_is_made_anew() throws Exception {
        SnapshotId golden = pool().golden().orElseThrow().id();
        fixture.node.fail(
                FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY, new AtollException(ErrorCode.INTERNAL, "it broke", "", ""));
        for (int i = 0; i < 8; i++) {
            assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        }
        Eventually.until(() -> !fixture.node.stored().ids().contains(golden), fixture.node.stored()::ids);
        fixture.node.fail(FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY, null);
        fixture.full();
        assertThat(pool().golden()).map(PoolStatus.Golden::id).isNotEqualTo(Optional.of(golden));
        Eventually.until(() -> fixture.node.stored().ids().size() == 1, fixture.node.stored()::ids);
    }

    @Test
    void an_unusable_snapshot_is_made_anew_at_once() throws Exception {
        SnapshotId golden = pool().golden().orElseThrow().id();
        fixture.node.stored().spoil(golden, "page 7 is not what it was");
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        Eventually.until(
                () -> pool().golden().filter(now -> !now.id().equals(golden)).isPresent(), this::pool);
        fixture.full();
        assertThat(pool().restoreFailures()).isEqualTo(Map.of("snapshot_unusable", 1L));
        Eventually.until(() -> !fixture.node.stored().ids().contains(golden), fixture.node.stored()::ids);
    }

    @Test
    void a_pool_without_a_snapshot_is_filled_all_the_same() throws Exception {
        fixture.close();
        AtollException full = new AtollException(ErrorCode.DISK_FULL, "the disk is full", "", "");
        fixture = new CoreFixture(FOUR_BUN, node -> node.fail(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.MIDWAY, full));
        fixture.ready();
        Eventually.until(() -> pool().ready() == 4, this::pool);
        assertThat(pool().starts()).isEqualTo(Map.of("started", 4L));
        assertThat(pool().golden()).isEmpty();
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        fixture.node.fail(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.MIDWAY, null);
        fixture.full();
        Eventually.until(() -> fixture.node.stored().ids().size() == 1, fixture.node.stored()::ids);
    }

    @Test
    void a_pool_of_a_runtime_without_snapshots_is_filled_and_does_not_ask_for_them_again() throws Exception {
        fixture.close();
        AtollException never = new AtollException(ErrorCode.UNSUPPORTED_BY_RUNTIME, "it can't do it", "", "");
        var asked = new AtomicInteger();
        fixture = new CoreFixture(FOUR_BUN, node -> {
            node.at(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.BEFORE, () -> {
                asked.incrementAndGet();
                throw never;
            });
            node.at(FakeCall.PREPARE_BOX, FakeCall.Step.BEFORE, () -> {
                asked.incrementAndGet();
                throw never;
            });
        });
        fixture.ready();
        for (int round = 0; round < 3; round++) {
            Eventually.until(() -> pool().ready() == 4 && pool().starting() == 0, this::pool);
            assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        }
        Eventually.until(() -> pool().ready() == 4 && pool().starting() == 0, this::pool);
        assertThat(pool().golden()).isEmpty();
        assertThat(pool().prepared()).isZero();
        assertThat(asked.get()).isLessThanOrEqualTo(2);
    }

    @Test
    void a_box_that_dies_while_its_snapshot_is_made_is_not_handed_out() throws Exception {
        fixture.close();
        AtollException ended = new AtollException(ErrorCode.CONFLICT, "the box has ended", "", "");
        fixture =
                new CoreFixture(FOUR_BUN, node -> node.failOnce(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.MIDWAY, ended));
        fixture.ready().full();
        assertThat(fixture.node.stored().ids()).hasSize(1);
        // None is left over of the one that died.
        Eventually.until(() -> fixture.node.liveBoxes() == pool().ready() + pool().prepared(), fixture.node::boxes);
    }

    @Test
    void the_box_that_the_snapshot_is_made_of_goes_to_a_caller_who_waits() throws Exception {
        fixture.close();
        List<Hold> holds = new ArrayList<>();
        fixture =
                new CoreFixture(FOUR_BUN, node -> holds.add(node.hold(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.MIDWAY)));
        Hold hold = holds.getFirst();
        fixture.ready();
        hold.awaitReached();
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<ExecutionOutcome> call = threads.submit(() -> fixture.run("print x"));
            Eventually.until(() -> pool().misses().equals(Map.of("starting", 1L)), this::pool);
            hold.release();
            assertThat(call.get().output().text()).isEqualTo("x");
        }
        fixture.full();
        assertThat(pool().starts()).containsEntry("started", 1L);
    }

    @Test
    void the_snapshot_outlives_the_server_and_others_of_the_pool_are_removed() throws Exception {
        SnapshotId golden = pool().golden().orElseThrow().id();
        SnapshotId old = SnapshotId.random();
        SnapshotId strange = SnapshotId.random();
        BoxId model = fixture.node.boxes().getFirst().id();
        make(model, old, "typescript-bun@0123456789abcdef");
        make(model, strange, "gone@0123456789abcdef");
        fixture.restart();
        fixture.full();
        assertThat(pool().golden()).map(PoolStatus.Golden::id).contains(golden);
        Eventually.until(() -> fixture.node.stored().ids().equals(Set.of(golden)), fixture.node.stored()::ids);
        assertThat(pool().starts()).isEmpty();
    }

    private void make(BoxId model, SnapshotId id, String label) {
        NodeSnapshot made = fixture.node.createSnapshot(model, id, SnapshotKind.MEMORY, Map.of("atoll.golden", label));
        assertThat(made.id()).isEqualTo(id);
    }

    @Test
    void the_snapshot_of_an_old_image_is_replaced() {
        SnapshotId golden = pool().golden().orElseThrow().id();
        List<Image> images = new ArrayList<>(fixture.node.images());
        Image old = images.getFirst();
        images.set(0, new Image(old.name(), "c".repeat(64), 1, old.languages(), Map.of()));
        fixture.node.setImages(images);
        fixture.restart();
        fixture.full();
        assertThat(pool().golden()).map(PoolStatus.Golden::id).isNotEqualTo(Optional.of(golden));
        Eventually.until(() -> fixture.node.stored().ids().size() == 1, fixture.node.stored()::ids);
    }

    @Test
    void an_image_that_changes_while_the_server_runs_replaces_the_stock_once_the_engine_is_back() {
        Set<BoxId> before = new HashSet<>();
        fixture.node.boxes().forEach(box -> before.add(box.id()));
        List<Image> images = new ArrayList<>(fixture.node.images());
        Image old = images.getFirst();
        images.set(0, new Image(old.name(), "c".repeat(64), 1, old.languages(), Map.of()));
        fixture.node.setImages(images);
        fixture.node.goAway();
        fixture.node.comeBack();
        Eventually.until(
                () -> fixture.node.boxes().stream().noneMatch(box -> before.contains(box.id())), fixture.node::boxes);
        fixture.full();
    }

    @Test
    void a_miss_is_restored_into_a_prepared_box_and_a_refill_is_not() throws Exception {
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        fixture.full();
        assertThat(fixture.node.stored().preparedUsed()).isZero();
        Hold hold = holdRestores();
        for (int i = 0; i < 4; i++) {
            assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        }
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Future<ExecutionOutcome>> calls = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                calls.add(threads.submit(() -> fixture.run("print y")));
            }
            Eventually.until(
                    () -> pool().misses().values().stream().mapToLong(n -> n).sum() == 8, this::pool);
            hold.release();
            for (Future<ExecutionOutcome> call : calls) {
                assertThat(call.get().output().text()).isEqualTo("y");
            }
        }
        assertThat(fixture.node.stored().preparedUsed()).isEqualTo(1);
        fixture.full();
    }

    @Test
    void prepared_boxes_outlive_the_server_too() {
        List<BoxId> before = prepared();
        assertThat(before).hasSize(1);
        fixture.restart();
        fixture.full();
        assertThat(prepared()).isEqualTo(before);
    }

    private List<BoxId> prepared() {
        return fixture.node.boxes().stream()
                .filter(box -> box.state() == BoxState.PREPARED)
                .map(Box::id)
                .toList();
    }

    @Test
    void a_pool_grows_with_what_is_asked_for_at_once_up_to_its_most() throws Exception {
        fixture.close();
        fixture = new CoreFixture(Map.of(
                        "pool.depth", "0",
                        "pool.depth.typescript-bun", "2",
                        "pool.max_depth", "6",
                        "pool.max_prepared", "0"))
                .ready()
                .full();
        assertThat(pool().target()).isEqualTo(2);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Future<ExecutionOutcome>> calls = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                calls.add(threads.submit(() -> fixture.run("print x")));
            }
            for (Future<ExecutionOutcome> call : calls) {
                assertThat(call.get().output().text()).isEqualTo("x");
            }
        }
        Eventually.until(() -> pool().target() > 2 && pool().ready() == pool().target(), this::pool);
        assertThat(pool().target()).isLessThanOrEqualTo(6);
    }

    @Test
    void pools_together_stay_within_their_share_of_the_memory() throws Exception {
        fixture.close();
        // The node has 8 GiB: one percent is room for three started boxes of two pools that are to hold two each.
        fixture = new CoreFixture(Map.of("pool.depth", "2", "pool.memory_percent", "1", "pool.max_prepared", "0"))
                .ready();
        Eventually.until(
                () -> fixture.core().status().pools().stream()
                                .mapToInt(PoolStatus::ready)
                                .sum()
                        == 3,
                fixture.core()::status);
        fixture.full();
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        long held = fixture.core().status().pools().stream()
                .mapToLong(PoolStatus::memoryBytes)
                .sum();
        assertThat(held).isLessThanOrEqualTo((8L << 30) / 100);
    }

    @Test
    void a_missing_image_is_named_and_used_once_it_is_there() throws Exception {
        fixture.close();
        fixture = new CoreFixture(FOUR_BUN);
        List<Image> images = fixture.node.images();
        fixture.node.setImages(List.of());
        fixture.ready();
        fixture.node.setImages(images);
        fixture.full();
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
    }

    @Test
    void the_pool_outlives_the_server() {
        Set<BoxId> before = new HashSet<>();
        fixture.node.boxes().forEach(box -> before.add(box.id()));
        fixture.restart();
        fixture.full();
        assertThat(fixture.node.boxes()).extracting(Box::id).containsExactlyInAnyOrderElementsOf(before);
        assertThat(made()).isEqualTo(4);
    }

    @Test
    void boxes_of_an_old_image_are_replaced() {
        Set<BoxId> before = new HashSet<>();
        fixture.node.boxes().forEach(box -> before.add(box.id()));
        List<Image> images = new ArrayList<>(fixture.node.images());
        Image old = images.getFirst();
        images.set(0, new Image(old.name(), "c".repeat(64), 1, old.languages(), Map.of()));
        fixture.node.setImages(images);
        fixture.restart();
        fixture.full();
        Eventually.until(
                () -> fixture.node.boxes().stream().noneMatch(box -> before.contains(box.id())), fixture.node::boxes);
    }

    @Test
    void the_number_of_live_sandboxes_is_bounded() throws Exception {
        fixture.close();
        fixture = new CoreFixture(Map.of("sandboxes.max", "2", "pool.depth", "0")).ready();
        SandboxId first = fixture.run("print").sandboxId();
        assertThat(fixture.run("print").sandboxId()).isNotEqualTo(first);
        assertThatThrownBy(() -> fixture.run("print"))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.QUOTA_EXCEEDED));
        assertThat(fixture.core().sandboxes().delete(fixture.caller(), first).end())
                .isPresent();
        assertThat(fixture.run("print").sandboxId()).isNotEqualTo(first);
    }
}
