package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExitReason;
import atoll.core.node.NodeSnapshot;
import atoll.core.sandbox.Context;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.IfExists;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.Run;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.SeenContext;
import atoll.core.sandbox.Term;
import atoll.core.snapshot.CreateSnapshot;
import atoll.core.snapshot.Forking;
import atoll.core.snapshot.ImportSnapshot;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.snapshot.SnapshotQuery;
import atoll.core.snapshot.SnapshotService;
import atoll.core.snapshot.SnapshotState;
import atoll.core.snapshot.Snapshots;
import atoll.core.snapshot.UpdateSnapshot;
import atoll.core.template.LimitChanges;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import atoll.core.testing.FakeCall;
import atoll.core.testing.FakeNode.Hold;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class SnapshotTest {
    private static final String OTHER_KEY = "cd".repeat(32);

    private CoreFixture fixture = new CoreFixture(Map.of("pool.depth", "0", "node.patience_seconds", "20")).ready();

    @AfterEach
    void close() {
        fixture.close();
    }

    private Snapshots snapshots() {
        return fixture.core().snapshots();
    }

    private Caller caller() {
        return fixture.caller();
    }

    private Sandbox create() throws Exception {
        return create(Optional.empty());
    }

    private Sandbox create(Optional<SnapshotId> from) throws Exception {
        return fixture.core()
                .sandboxes()
                .create(
                        caller(),
                        new CreateSandbox(
                                Optional.empty(),
                                Optional.empty(),
                                from.isPresent() ? Map.of() : Map.of("WHO", "me"),
                                Map.of(),
                                LimitChanges.NONE,
                                Optional.empty(),
                                Optional.empty(),
                                IfExists.FAIL,
                                LifecycleChanges.NONE,
                                from,
                                Optional.empty()));
    }

    private Snapshot snapshot(SandboxId of) throws Exception {
        return snapshots().create(caller(), of, CreateSnapshot.of(SnapshotKind.MEMORY));
    }

    private Snapshot named(SandboxId of, String name, Map<String, String> labels) throws Exception {
        return snapshots()
                .create(
                        caller(),
                        of,
                        new CreateSnapshot(
                                SnapshotKind.MEMORY, Optional.of(name), Optional.empty(), labels, Optional.empty()));
    }

    private static CreateSnapshot keyed(String key, SnapshotKind kind) {
        return new CreateSnapshot(kind, Optional.empty(), Optional.empty(), Map.of(), Optional.of(key));
    }

    private String run(SandboxId in, String code) throws Exception {
        return ran(CodeExecRequest.of(code).in(in));
    }

    private String ran(CodeExecRequest request) throws Exception {
        ExecutionOutcome outcome = fixture.run(request);
        assertThat(outcome.exitReason()).isEqualTo(ExitReason.COMPLETED);
        return outcome.output().text();
    }

    private static void assertCode(ErrorCode code, ThrowingCallable call) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        AtollException.class,
                        e -> assertThat(e.code()).as(e.message()).isEqualTo(code));
    }

    private Set<SnapshotId> files() {
        return fixture.node.stored().ids();
    }

    private List<Snapshot> all() {
        return snapshots().list(caller(), SnapshotQuery.ALL).items();
    }

    // Making them, and sandboxes from them.

    @Test
    void a_sandbox_from_a_snapshot_goes_on_where_the_source_was() throws Exception {
        Sandbox source = create();
        assertThat(run(source.id(), "set x 1")).isEmpty();
        Snapshot taken = snapshot(source.id());
        assertThat(run(source.id(), "set x 2")).isEmpty();
        assertThat(taken.state()).isEqualTo(SnapshotState.READY);
        assertThat(taken.sizeBytes()).isPositive();
        assertThat(taken.stopped()).isPositive();
        assertThat(taken.sandbox()).contains(source.id());

        Sandbox first = create(Optional.of(taken.id()));
        Sandbox second = create(Optional.of(taken.id()));
        assertThat(run(first.id(), "get x\nset x 3")).isEqualTo("1");
        assertThat(run(second.id(), "get x\nenv WHO")).isEqualTo("1\nme");
        assertThat(run(source.id(), "get x")).isEqualTo("2");
        assertThat(first.origin()).contains(new Sandbox.Origin(Optional.of(source.id()), Optional.of(taken.id())));
        assertThat(fixture.core().sandboxes().runs(caller(), first.id()))
                .extracting(Run::how)
                .containsExactly(Run.How.SNAPSHOT);
    }

    @Test
    void contexts_of_a_copy_have_ids_of_their_own_and_answer_to_those_of_the_source() throws Exception {
        Sandbox source = create();
        assertThat(run(source.id(), "set x 1")).isEmpty();
        Context context = contexts(source.id()).getFirst();
        Sandbox copy = create(Optional.of(snapshot(source.id()).id()));
        assertThat(contexts(copy.id())).hasSize(1);
        assertThat(contexts(copy.id()).getFirst().id()).isNotEqualTo(context.id());
        assertThat(ran(CodeExecRequest.of("get x").in(copy.id()).in(context.id())))
                .isEqualTo("1");
    }

    private List<Context> contexts(SandboxId of) {
        return fixture.core().contexts().list(caller(), of).stream()
                .map(SeenContext::context)
                .toList();
    }

    @Test
    void a_paused_sandbox_is_snapshotted_and_stays_paused() throws Exception {
        Sandbox source = create();
        assertThat(run(source.id(), "set x 1")).isEmpty();
        assertThat(fixture.core().sandboxes().pause(caller(), source.id()).state())
                .isEqualTo(SandboxState.PAUSED);
        Snapshot taken = snapshot(source.id());
        assertThat(fixture.core().sandboxes().get(caller(), source.id()).state())
                .isEqualTo(SandboxState.PAUSED);
        assertThat(run(create(Optional.of(taken.id())).id(), "get x")).isEqualTo("1");
    }

    @Test
    void a_snapshot_of_files_starts_interpreters_anew() throws Exception {
        Sandbox source = create();
        assertThat(run(source.id(), "set x 1")).isEmpty();
        Snapshot taken = snapshots().create(caller(), source.id(), CreateSnapshot.of(SnapshotKind.FILES));
        assertThat(taken.kind()).isEqualTo(SnapshotKind.FILES);
        Sandbox copy = create(Optional.of(taken.id()));
        assertThat(run(copy.id(), "print it works")).isEqualTo("it works");
    }

    @Test
    void a_name_is_given_once_and_is_free_again_after_the_delete() throws Exception {
        Sandbox source = create();
        Snapshot first = named(source.id(), "clean", Map.of());
        assertCode(ErrorCode.CONFLICT, () -> named(source.id(), "clean", Map.of()));
        assertThat(files()).containsExactly(first.id());
        snapshots().delete(caller(), first.id());
        assertThat(named(source.id(), "clean", Map.of()).name()).contains("clean");
    }

    @Test
    void the_same_key_gets_the_same_snapshot_also_when_its_sandbox_is_gone() throws Exception {
        Sandbox source = create();
        Snapshot first = snapshots().create(caller(), source.id(), keyed("k", SnapshotKind.MEMORY));
        assertThat(snapshots().create(caller(), source.id(), keyed("k", SnapshotKind.MEMORY)))
                .isEqualTo(first);
        assertCode(ErrorCode.CONFLICT, () -> snapshots().create(caller(), source.id(), keyed("k", SnapshotKind.FILES)));
        assertThat(fixture.core().sandboxes().delete(caller(), source.id()).end())
                .isPresent();
        assertThat(snapshots().create(caller(), source.id(), keyed("k", SnapshotKind.MEMORY)))
                .isEqualTo(first);
        assertThat(files()).containsExactly(first.id());
    }

    @Test
    void a_full_disk_is_told_with_what_to_do_and_leaves_nothing() throws Exception {
        Sandbox source = create();
        fixture.node.setDisk(1L << 30, 0);
        assertThatThrownBy(() -> snapshot(source.id())).isInstanceOfSatisfying(AtollException.class, e -> {
            assertThat(e.code()).isEqualTo(ErrorCode.DISK_FULL);
            assertThat(e.remediation()).contains("Delete snapshots");
        });
        assertThat(all()).isEmpty();
        assertThat(files()).isEmpty();
        assertThat(run(source.id(), "print x")).isEqualTo("x");
    }

    @Test
    void a_failed_snapshot_can_be_asked_for_again_with_the_same_key() throws Exception {
        Sandbox source = create();
        fixture.node.failOnce(
                FakeCall.CREATE_SNAPSHOT,
                FakeCall.Step.AFTER,
                new AtollException(ErrorCode.INTERNAL, "it broke", "", ""));
        assertCode(
                ErrorCode.INTERNAL, () -> snapshots().create(caller(), source.id(), keyed("k", SnapshotKind.MEMORY)));
        assertThat(all()).isEmpty();
        assertThat(files()).isEmpty();
        Snapshot made = snapshots().create(caller(), source.id(), keyed("k", SnapshotKind.MEMORY));
        assertThat(files()).containsExactly(made.id());
    }

    @Test
    void an_ended_sandbox_has_no_snapshots_made() throws Exception {
        Sandbox source = create();
        assertThat(fixture.core().sandboxes().delete(caller(), source.id()).end())
                .isPresent();
        assertCode(ErrorCode.SANDBOX_ENDED, () -> snapshot(source.id()));
    }

    @Test
    void a_sandbox_deleted_while_its_snapshot_is_made_is_told_as_ended() throws Exception {
        Sandbox source = create();
        Hold hold = fixture.node.hold(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.MIDWAY);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<Snapshot> call = threads.submit(() -> snapshot(source.id()));
            hold.awaitReached();
            assertThat(fixture.core().sandboxes().delete(caller(), source.id()).end())
                    .isPresent();
            Eventually.until(() -> fixture.node.box(source.box()).isEmpty(), fixture.node::boxes);
            hold.release();
            assertThatThrownBy(call::get)
                    .cause()
                    .isInstanceOfSatisfying(
                            AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.SANDBOX_ENDED));
        }
        assertThat(all()).isEmpty();
        assertThat(files()).isEmpty();
    }

    // Looking and changing.

    @Test
    void lists_are_filtered_and_show_where_a_snapshot_comes_from() throws Exception {
        Sandbox source = create();
        Snapshot first = named(source.id(), "first", Map.of("stage", "1"));
        Sandbox copy = create(Optional.of(first.id()));
        Snapshot second = named(copy.id(), "second", Map.of("stage", "2"));
        assertThat(first.parent()).isEmpty();
        assertThat(second.parent()).contains(first.id());
        assertThat(all()).extracting(Snapshot::id).containsExactlyInAnyOrder(first.id(), second.id());
        assertThat(found(Optional.of(copy.id()), Optional.empty(), Map.of())).containsExactly(second.id());
        assertThat(found(Optional.empty(), Optional.of("first"), Map.of())).containsExactly(first.id());
        assertThat(found(Optional.empty(), Optional.empty(), Map.of("stage", "2")))
                .containsExactly(second.id());
    }

    private List<SnapshotId> found(Optional<SandboxId> of, Optional<String> name, Map<String, String> labels) {
        return snapshots()
                .list(caller(), new SnapshotQuery(of, Optional.empty(), name, labels, PageRequest.FIRST))
                .items()
                .stream()
                .map(Snapshot::id)
                .toList();
    }

    @Test
    void name_labels_and_expiry_can_be_changed() throws Exception {
        Sandbox source = create();
        Snapshot taken = named(source.id(), "old", Map.of("a", "1", "b", "2"));
        Snapshot other = named(source.id(), "other", Map.of());
        Snapshot changed = snapshots()
                .update(
                        caller(),
                        taken.id(),
                        new UpdateSnapshot(
                                Optional.of("new"),
                                Map.of("a", Optional.empty(), "c", Optional.of("3")),
                                Optional.of(Term.of(Duration.ofHours(1)))));
        assertThat(changed.name()).contains("new");
        assertThat(changed.labels()).isEqualTo(Map.of("b", "2", "c", "3"));
        assertThat(changed.expiresAt()).isPresent();
        assertThat(snapshots().get(caller(), taken.id())).isEqualTo(changed);
        UpdateSnapshot toTaken = new UpdateSnapshot(Optional.of("new"), Map.of(), Optional.empty());
        assertCode(ErrorCode.CONFLICT, () -> snapshots().update(caller(), other.id(), toTaken));
        UpdateSnapshot forEver = new UpdateSnapshot(Optional.empty(), Map.of(), Optional.of(Term.NONE));
        assertThat(snapshots().update(caller(), taken.id(), forEver).expiresAt())
                .isEmpty();
    }

    @Test
    void a_deleted_snapshot_is_gone_with_its_file_and_its_copies_go_on() throws Exception {
        Sandbox source = create();
        assertThat(run(source.id(), "set x 1")).isEmpty();
        Snapshot taken = snapshot(source.id());
        Sandbox copy = create(Optional.of(taken.id()));
        snapshots().delete(caller(), taken.id());
        Eventually.until(() -> files().isEmpty(), this::files);
        assertCode(ErrorCode.SNAPSHOT_NOT_FOUND, () -> snapshots().get(caller(), taken.id()));
        assertCode(ErrorCode.SNAPSHOT_NOT_FOUND, () -> snapshots().delete(caller(), taken.id()));
        assertCode(ErrorCode.SNAPSHOT_NOT_FOUND, () -> create(Optional.of(taken.id())));
        assertThat(run(copy.id(), "get x")).isEqualTo("1");
    }

    @Test
    void an_expired_snapshot_is_removed_and_others_stay() throws Exception {
        Sandbox source = create();
        Snapshot kept = snapshot(source.id());
        CreateSnapshot shortLived = new CreateSnapshot(
                SnapshotKind.MEMORY,
                Optional.empty(),
                Optional.of(Term.of(Duration.ofMinutes(10))),
                Map.of(),
                Optional.empty());
        Snapshot going = snapshots().create(caller(), source.id(), shortLived);
        fixture.core().expire();
        assertThat(all()).hasSize(2);
        fixture.clock.advance(Duration.ofMinutes(10));
        fixture.core().expire();
        assertCode(ErrorCode.SNAPSHOT_NOT_FOUND, () -> snapshots().get(caller(), going.id()));
        Eventually.until(() -> files().equals(Set.of(kept.id())), this::files);
    }

    @Test
    void what_expired_while_the_server_was_away_is_removed_after_its_start() throws Exception {
        Sandbox source = create();
        CreateSnapshot shortLived = new CreateSnapshot(
                SnapshotKind.MEMORY,
                Optional.empty(),
                Optional.of(Term.of(Duration.ofMinutes(10))),
                Map.of(),
                Optional.empty());
        assertThat(snapshots().create(caller(), source.id(), shortLived).expiresAt())
                .isPresent();
        fixture.clock.advance(Duration.ofMinutes(11));
        fixture.restart();
        Eventually.until(() -> all().isEmpty() && files().isEmpty(), this::all);
    }

    // Going back.

    @Test
    void a_rollback_brings_back_what_was() throws Exception {
        Sandbox sandbox = create();
        assertThat(run(sandbox.id(), "set x 1")).isEmpty();
        Snapshot taken = snapshot(sandbox.id());
        assertThat(run(sandbox.id(), "set x 2")).isEmpty();
        assertThat(snapshots().rollback(caller(), sandbox.id(), taken.id()).state())
                .isEqualTo(SandboxState.RUNNING);
        assertThat(run(sandbox.id(), "get x")).isEqualTo("1");
        // What is made now comes from there.
        assertThat(snapshot(sandbox.id()).parent()).contains(taken.id());
    }

    @Test
    void a_rollback_that_fails_leaves_everything_as_it_was() throws Exception {
        Sandbox sandbox = create();
        Snapshot taken = snapshot(sandbox.id());
        assertThat(run(sandbox.id(), "set x 2")).isEmpty();
        fixture.node.failOnce(
                FakeCall.ROLLBACK_BOX,
                FakeCall.Step.MIDWAY,
                new AtollException(ErrorCode.INTERNAL, "it broke", "", ""));
        assertCode(ErrorCode.INTERNAL, () -> snapshots().rollback(caller(), sandbox.id(), taken.id()));
        assertThat(run(sandbox.id(), "get x")).isEqualTo("2");
    }

    @Test
    void a_snapshot_of_another_sandbox_is_no_way_back() throws Exception {
        Sandbox sandbox = create();
        Snapshot other = snapshot(create().id());
        assertCode(ErrorCode.INVALID_REQUEST, () -> snapshots().rollback(caller(), sandbox.id(), other.id()));
    }

    // As files.

    private byte[] export(SnapshotId id) throws Exception {
        try (InputStream data = snapshots().exportFile(caller(), id)) {
            return data.readAllBytes();
        }
    }

    private Snapshot take(byte[] file) throws Exception {
        return snapshots()
                .importFile(
                        caller(),
                        new ImportSnapshot(Optional.of("taken"), Map.of("from", "afar")),
                        new ByteArrayInputStream(file));
    }

    @Test
    void an_exported_snapshot_can_be_imported_and_brought_to_life() throws Exception {
        Sandbox source = create();
        assertThat(run(source.id(), "set x 1")).isEmpty();
        byte[] file = export(snapshot(source.id()).id());
        Snapshot imported = take(file);
        assertThat(imported.sandbox()).isEmpty();
        assertThat(imported.template()).isEqualTo(source.template());
        assertThat(imported.labels()).isEqualTo(Map.of("from", "afar"));
        // What the sandbox was told never comes from a file.
        assertThat(imported.env()).isEmpty();
        Sandbox copy = create(Optional.of(imported.id()));
        assertThat(run(copy.id(), "get x")).isEqualTo("1");
        assertThat(run(copy.id(), "env WHO")).isBlank();
    }

    @Test
    void a_file_signed_elsewhere_is_taken_only_if_its_key_is_trusted() throws Exception {
        fixture.node.stored().setKey(OTHER_KEY);
        byte[] file = export(snapshot(create().id()).id());
        fixture.close();
        fixture = new CoreFixture(Map.of("pool.depth", "0")).ready();
        assertCode(ErrorCode.SNAPSHOT_UNUSABLE, () -> take(file));
        assertThat(all()).isEmpty();
        assertThat(files()).isEmpty();
        fixture.close();
        fixture = new CoreFixture(Map.of("pool.depth", "0", "snapshots.trusted_keys", OTHER_KEY)).ready();
        assertThat(take(file).state()).isEqualTo(SnapshotState.READY);
    }

    @Test
    void a_file_of_a_sandbox_larger_than_is_allowed_here_is_refused_and_removed() throws Exception {
        byte[] file = export(snapshot(create().id()).id());
        fixture.close();
        fixture = new CoreFixture(Map.of(
                        "pool.depth", "0",
                        "limits.memory_mib", "128",
                        "limits.disk_mib", "64",
                        "bounds.memory_mib", "128",
                        "bounds.disk_mib", "64"))
                .ready();
        assertCode(ErrorCode.INVALID_REQUEST, () -> take(file));
        assertThat(all()).isEmpty();
        Eventually.until(() -> files().isEmpty(), this::files);
    }

    @Test
    void importing_is_for_administrators() throws Exception {
        byte[] file = export(snapshot(create().id()).id());
        Caller plain = new Caller(caller().project(), caller().key(), Set.of(Scope.READ, Scope.EXECUTE));
        assertCode(
                ErrorCode.FORBIDDEN,
                () -> snapshots()
                        .importFile(
                                plain, new ImportSnapshot(Optional.empty(), Map.of()), new ByteArrayInputStream(file)));
    }

    @Test
    void snapshots_of_another_project_do_not_exist() throws Exception {
        Sandbox source = create();
        Snapshot taken = snapshot(source.id());
        Caller other = new Caller(ProjectId.random(), caller().key(), Set.of(Scope.values()));
        assertCode(ErrorCode.SNAPSHOT_NOT_FOUND, () -> snapshots().get(other, taken.id()));
        assertCode(ErrorCode.SNAPSHOT_NOT_FOUND, () -> snapshots().delete(other, taken.id()));
        assertCode(ErrorCode.SNAPSHOT_NOT_FOUND, () -> snapshots().exportFile(other, taken.id()));
        assertThat(snapshots().list(other, SnapshotQuery.ALL).items()).isEmpty();
    }

    // After crashes and other trouble.

    /** A record as it is while its snapshot is being made. */
    private Snapshot recordOf(Sandbox source) throws Exception {
        Snapshot model = snapshot(source.id());
        snapshots().delete(caller(), model.id());
        Eventually.until(() -> files().isEmpty(), this::files);
        return new Snapshot(
                SnapshotId.random(),
                model.project(),
                Optional.of("cut-off"),
                model.kind(),
                model.sandbox(),
                model.template(),
                model.templateVersion(),
                Optional.empty(),
                model.limits(),
                model.env(),
                model.contexts(),
                Map.of(),
                SnapshotState.CREATING,
                0,
                Duration.ZERO,
                model.createdAt(),
                Optional.empty(),
                "");
    }

    @Test
    void a_crash_before_the_file_is_whole_leaves_nothing() throws Exception {
        Sandbox source = create();
        Snapshot cutOff = recordOf(source);
        fixture.store.insertSnapshot(cutOff);
        fixture.restart();
        assertCode(ErrorCode.SNAPSHOT_NOT_FOUND, () -> snapshots().get(caller(), cutOff.id()));
        assertThat(named(source.id(), "cut-off", Map.of()).state()).isEqualTo(SnapshotState.READY);
    }

    @Test
    void a_crash_after_the_file_is_whole_leaves_a_good_snapshot() throws Exception {
        Sandbox source = create();
        assertThat(run(source.id(), "set x 1")).isEmpty();
        Snapshot cutOff = recordOf(source);
        fixture.store.insertSnapshot(cutOff);
        NodeSnapshot file = fixture.node.createSnapshot(source.box(), cutOff.id(), SnapshotKind.MEMORY, Map.of());
        fixture.restart();
        Snapshot found = snapshots().get(caller(), cutOff.id());
        assertThat(found.state()).isEqualTo(SnapshotState.READY);
        assertThat(found.sizeBytes()).isEqualTo(file.sizeBytes());
        assertThat(run(create(Optional.of(cutOff.id())).id(), "get x")).isEqualTo("1");
    }

    @Test
    void a_snapshot_that_is_finished_while_store_and_node_are_compared_stays() throws Exception {
        Sandbox source = create();
        SnapshotService service = (SnapshotService) snapshots();
        Forking forks = (Forking) fixture.core().forks();
        Hold making = fixture.node.hold(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.MIDWAY);
        Hold listed = fixture.node.hold(FakeCall.LIST_SNAPSHOTS, FakeCall.Step.AFTER);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<Snapshot> made = threads.submit(() -> snapshot(source.id()));
            making.awaitReached();
            Future<?> compared = threads.submit(() -> service.reconcile(forks));
            // Its record says that it is being made, and the node does not have it yet.
            listed.awaitReached();
            making.release();
            Snapshot ready = made.get();
            listed.release();
            assertThat(compared.get()).isNull();
            assertThat(snapshots().get(caller(), ready.id()).state()).isEqualTo(SnapshotState.READY);
            assertThat(files()).contains(ready.id());
        }
    }

    @Test
    void a_file_that_is_on_no_record_is_removed() throws Exception {
        Sandbox source = create();
        Snapshot kept = snapshot(source.id());
        NodeSnapshot orphan =
                fixture.node.createSnapshot(source.box(), SnapshotId.random(), SnapshotKind.MEMORY, Map.of());
        assertThat(files()).contains(orphan.id());
        fixture.restart();
        Eventually.until(() -> files().equals(Set.of(kept.id())), this::files);
    }

    @Test
    void a_record_whose_file_is_gone_says_so_and_frees_its_name() throws Exception {
        Sandbox source = create();
        Snapshot taken = named(source.id(), "mine", Map.of());
        fixture.node.stored().lose(taken.id());
        fixture.restart();
        Snapshot lost = snapshots().get(caller(), taken.id());
        assertThat(lost.state()).isEqualTo(SnapshotState.LOST);
        assertThat(lost.detail()).contains("not on the node any more");
        assertCode(ErrorCode.SNAPSHOT_UNUSABLE, () -> create(Optional.of(taken.id())));
        assertThat(named(source.id(), "mine", Map.of()).state()).isEqualTo(SnapshotState.READY);
        snapshots().delete(caller(), taken.id());
        assertCode(ErrorCode.SNAPSHOT_NOT_FOUND, () -> snapshots().get(caller(), taken.id()));
    }

    @Test
    void a_file_that_is_there_again_is_good_again_and_not_removed() throws Exception {
        Sandbox source = create();
        Snapshot taken = named(source.id(), "mine", Map.of());
        fixture.node.stored().lose(taken.id());
        fixture.restart();
        assertThat(snapshots().get(caller(), taken.id()).state()).isEqualTo(SnapshotState.LOST);
        NodeSnapshot back = fixture.node.createSnapshot(source.box(), taken.id(), SnapshotKind.MEMORY, Map.of());
        fixture.restart();
        Snapshot found = snapshots().get(caller(), taken.id());
        assertThat(found.state()).isEqualTo(SnapshotState.READY);
        assertThat(found.detail()).isEmpty();
        assertThat(found.name()).contains("mine");
        assertThat(files()).contains(back.id());
    }

    @Test
    void one_that_the_node_cannot_restore_is_listed_with_the_reason() throws Exception {
        Sandbox source = create();
        Snapshot taken = snapshot(source.id());
        fixture.node.stored().spoil(taken.id(), "another build made it");
        fixture.restart();
        assertThat(snapshots().get(caller(), taken.id()).detail()).contains("another build made it");
        assertThat(all().getFirst().detail()).contains("another build made it");
        assertCode(ErrorCode.SNAPSHOT_UNUSABLE, () -> create(Optional.of(taken.id())));
        assertCode(ErrorCode.SNAPSHOT_UNUSABLE, () -> snapshots().rollback(caller(), source.id(), taken.id()));
        assertThat(run(source.id(), "print x")).isEqualTo("x");
    }

    @Test
    void one_being_made_survives_that_the_node_is_compared_meanwhile() throws Exception {
        Sandbox source = create();
        Hold hold = fixture.node.hold(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.AFTER);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<Snapshot> call = threads.submit(() -> snapshot(source.id()));
            hold.awaitReached();
            SnapshotId id = all().getFirst().id();
            assertCode(ErrorCode.CONFLICT, () -> snapshots().delete(caller(), id));
            fixture.node.goAway();
            fixture.node.comeBack();
            Eventually.until(() -> fixture.core().status().nodeConnected(), fixture.core()::status);
            hold.release();
            assertThat(call.get().state()).isEqualTo(SnapshotState.READY);
            assertThat(files()).containsExactly(id);
        }
    }
}
