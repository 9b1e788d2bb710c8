package atoll.core.testing;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.ProcessId;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.execution.ExitReason;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.file.FileOperation;
import atoll.core.file.FileWriter;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;
import atoll.core.node.Box;
import atoll.core.node.BoxAssignment;
import atoll.core.node.BoxSpec;
import atoll.core.node.BoxState;
import atoll.core.node.BoxUsage;
import atoll.core.node.ContextSpec;
import atoll.core.node.ExecutionSpec;
import atoll.core.node.Node;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeExecution;
import atoll.core.node.NodeProcess;
import atoll.core.node.NodeSnapshot;
import atoll.core.node.NodeStream;
import atoll.core.node.ProcessSpec;
import atoll.core.node.RestoreBox;
import atoll.core.process.OutputChoice;
import atoll.core.process.SignalTarget;
import atoll.core.process.Signals;
import atoll.core.sandbox.EndReason;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.template.Limits;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** What core relies on in every {@link Node} that pauses boxes and makes them anew, run as {@link NodeContract} is. */
public abstract class NodeSnapshotContract extends NodeFixture {
    private static final long MIB = 1 << 20;

    private final SandboxId sandbox = SandboxId.random();

    private static RestoreBox from(SnapshotId snapshot) {
        return from(snapshot, Map.of());
    }

    private static RestoreBox from(SnapshotId snapshot, Map<ContextId, ContextId> renames) {
        return new RestoreBox(
                Optional.of(snapshot),
                Optional.empty(),
                Optional.empty(),
                Optional.empty(),
                renames,
                List.of(),
                Map.of(),
                Optional.empty());
    }

    private static RestoreBox withPrepared(SnapshotId snapshot, BoxId prepared) {
        return new RestoreBox(
                Optional.of(snapshot),
                Optional.empty(),
                Optional.of(prepared),
                Optional.empty(),
                Map.of(),
                List.of(),
                Map.of(),
                Optional.empty());
    }

    private Box pause(BoxId id) {
        return node.pauseBox(id, SnapshotId.random());
    }

    private Box resume(BoxId id) {
        return node.resumeBox(id, Optional.empty(), assignment(sandbox));
    }

    private SnapshotId snapshot(BoxId id, SnapshotKind kind) {
        SnapshotId snapshot = SnapshotId.random();
        assertThat(node.createSnapshot(id, snapshot, kind, Map.of()).id()).isEqualTo(snapshot);
        return snapshot;
    }

    private BoxState state(BoxId id) {
        return node.box(id).orElseThrow().state();
    }

    private void write(BoxId id, String path, String content) throws InterruptedException {
        try (FileWriter writer = node.writeFile(id, "", replace(path))) {
            writer.write(ByteBuffer.wrap(content.getBytes(StandardCharsets.UTF_8)));
            assertThat(writer.commit().bytes()).isEqualTo(content.length());
        }
    }

    private static WriteFile replace(String path) {
        return new WriteFile(
                path,
                WriteFile.Mode.REPLACE,
                0,
                OptionalInt.empty(),
                true,
                Optional.empty(),
                Map.of(),
                OptionalLong.empty());
    }

    private String read(BoxId id, String path) throws InterruptedException {
        try (var reader = node.readFile(id, "", ReadFile.whole(path))) {
            return reader.next()
                    .map(StandardCharsets.UTF_8::decode)
                    .map(Object::toString)
                    .orElse("");
        }
    }

    private static ProcessSpec program(String script) {
        return new ProcessSpec(
                ProcessId.random(),
                List.of("/bin/bash", "-c", script),
                "",
                Map.of(),
                "",
                true,
                Optional.empty(),
                Optional.empty(),
                Map.of());
    }

    // Pauses.

    @Test
    void a_node_names_its_key_and_the_builds_it_can_restore() {
        assertThat(node.info().snapshotKey()).hasSize(64);
        assertThat(node.info().runtimeVersions()).containsExactly("1");
    }

    @Test
    void a_box_is_paused_and_goes_on_where_it_was() throws Exception {
        BoxId id = box(sandbox);
        run(id, "set x 7");
        write(id, "f", "content");
        SnapshotId snapshot = SnapshotId.random();
        Box paused = node.pauseBox(id, snapshot);
        assertThat(paused.state()).isEqualTo(BoxState.PAUSED);
        assertThat(paused.pausedIn()).contains(snapshot);
        assertThat(paused.pauseBytes()).hasValue(MIB);
        assertThat(paused.sandboxId()).contains(sandbox);
        assertThat(paused.contexts()).containsExactly(new NodeSnapshot.Held(context, Language.PYTHON));
        assertThat(node.box(id)).contains(paused);
        assertThat(node.snapshots()).isEmpty();
        assertThat(node.sampleUsage()).extracting(BoxUsage::box).doesNotContain(id);
        Box resumed = resume(id);
        assertThat(resumed.state()).isEqualTo(BoxState.READY);
        assertThat(resumed.pausedIn()).isEmpty();
        assertThat(resumed.pauseBytes()).isEmpty();
        assertThat(run(id, "get x")).isEqualTo("7\n");
        assertThat(read(id, "f")).isEqualTo("content");
        assertThat(fake.stored().pauses()).isZero();
    }

    @Test
    void a_box_that_is_paused_with_its_files_alone_starts_anew() throws Exception {
        BoxId id = box(sandbox);
        run(id, "set x 7");
        write(id, "f", "content");
        NodeStream<NodeEvent> events = node.execute(id, code("wait gate\nprint done"));
        assertThat(events.next()).isPresent();
        Box paused = node.pauseBox(id, SnapshotId.random(), SnapshotKind.FILES);
        assertThat(paused.state()).isEqualTo(BoxState.PAUSED);
        assertThat(paused.pauseKind()).contains(SnapshotKind.FILES);
        assertThat(paused.contexts()).isEmpty();
        assertThat(finish(all(events)).reason()).isEqualTo(ExitReason.LOST);
        assertFails(
                ErrorCode.SANDBOX_PAUSED,
                () -> node.createSnapshot(id, SnapshotId.random(), SnapshotKind.MEMORY, Map.of()));
        SnapshotId kept = snapshot(id, SnapshotKind.FILES);
        Box resumed = resume(id);
        assertThat(resumed.state()).isEqualTo(BoxState.READY);
        assertThat(resumed.contexts()).isEmpty();
        assertThat(read(id, "f")).isEqualTo("content");
        assertThat(node.openContext(id, ContextSpec.of(context, Language.PYTHON))
                        .id())
                .isEqualTo(context);
        assertThat(run(id, "get x")).isEqualTo("undefined\n");
        assertThat(node.snapshots()).extracting(NodeSnapshot::id).containsExactly(kept);
        assertThat(fake.stored().pauses()).isZero();
    }

    @Test
    void a_pause_that_is_asked_for_again_only_answers() {
        BoxId id = box(sandbox);
        SnapshotId snapshot = SnapshotId.random();
        Box first = node.pauseBox(id, snapshot);
        assertThat(node.pauseBox(id, snapshot)).isEqualTo(first);
        assertThat(resume(id).state()).isEqualTo(BoxState.READY);
        assertThat(resume(id).state()).isEqualTo(BoxState.READY);
    }

    @Test
    void a_pause_whose_answer_was_lost_is_asked_for_again() {
        BoxId id = box(sandbox);
        SnapshotId snapshot = SnapshotId.random();
        fake.failOnce(FakeCall.PAUSE_BOX, FakeCall.Step.AFTER, FakeNode.unavailable());
        assertFails(ErrorCode.NODE_UNAVAILABLE, () -> node.pauseBox(id, snapshot));
        assertThat(state(id)).isEqualTo(BoxState.PAUSED);
        assertThat(node.pauseBox(id, snapshot).pausedIn()).contains(snapshot);
    }

    @Test
    void after_a_pause_that_failed_the_box_runs_on() throws Exception {
        BoxId id = box(sandbox);
        run(id, "set x 7");
        ExecutionSpec waiting = code("wait gate\nprint done");
        NodeStream<NodeEvent> events = node.execute(id, waiting);
        assertThat(events.next()).isPresent();
        fake.failOnce(
                FakeCall.PAUSE_BOX, FakeCall.Step.MIDWAY, FakeNode.error(ErrorCode.INTERNAL, "the checkpoint failed"));
        assertFails(ErrorCode.INTERNAL, () -> pause(id));
        assertThat(state(id)).isEqualTo(BoxState.READY);
        assertThat(node.box(id).orElseThrow().pausedIn()).isEmpty();
        assertThat(run(id, "get x")).isEqualTo("7\n");
        fake.open("gate");
        assertThat(text(all(events), StandardStream.STDOUT)).isEqualTo("done\n");
    }

    @Test
    void a_full_disk_is_told_before_a_box_is_stopped() {
        BoxId id = box(sandbox);
        fake.setDisk(1L << 40, 0);
        fake.fail(FakeCall.PAUSE_BOX, FakeCall.Step.MIDWAY, FakeNode.error(ErrorCode.INTERNAL, "it was stopped"));
        assertFails(ErrorCode.DISK_FULL, () -> pause(id));
        assertFails(ErrorCode.DISK_FULL, () -> snapshot(id, SnapshotKind.MEMORY));
        assertThat(state(id)).isEqualTo(BoxState.READY);
        assertThat(node.snapshots()).isEmpty();
    }

    @Test
    void the_inside_of_a_paused_box_is_out_of_reach_and_that_is_said() {
        BoxId id = box(sandbox);
        ExecutionSpec waiting = code("wait never");
        ProcessSpec program = program("wait never");
        assertThat(node.processes().start(id, program).id()).isEqualTo(program.id());
        try (NodeStream<NodeEvent> events = node.execute(id, waiting)) {
            Eventually.until(() -> !node.executions().isEmpty(), node::executions);
            assertThat(pause(id).state()).isEqualTo(BoxState.PAUSED);
            assertThat(events).isNotNull();
        }
        ContextSpec more = ContextSpec.of(ContextId.random(), Language.BASH);
        var processes = node.processes();
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> all(node.execute(id, code("print x"))));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> node.interrupt(id, waiting.id()));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> node.openContext(id, more));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> node.restartContext(id, context));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> node.contexts(id));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> processes.start(id, program("print x")));
        assertFails(
                ErrorCode.SANDBOX_PAUSED,
                () -> processes.write(
                        id,
                        program.id(),
                        OptionalLong.of(0),
                        ByteBuffer.wrap(new byte[1]),
                        false,
                        Duration.ofSeconds(30)));
        assertFails(
                ErrorCode.SANDBOX_PAUSED, () -> processes.signal(id, program.id(), Signals.KILL, SignalTarget.GROUP));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> processes.guests(id));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> node.file(id, "", new FileOperation.Stat("x", true, false)));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> read(id, "f"));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> write(id, "f", "x"));
        assertFails(
                ErrorCode.SANDBOX_PAUSED,
                () -> node.watchFiles(id, "", "/", true).next());
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> node.ports(id));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> node.tunnel(id, 80));
    }

    @Test
    void what_was_said_in_a_paused_box_can_be_read() throws Exception {
        BoxId id = box(sandbox);
        ExecutionSpec ended = code("print a\nprint b");
        assertThat(all(node.execute(id, ended))).hasSize(4);
        ProcessSpec program = program("print c\nwait never");
        assertThat(node.processes().start(id, program).id()).isEqualTo(program.id());
        NodeStream<NodeEvent> said = node.processes().attach(id, program.id(), 1);
        assertThat(said.next()).isPresent();
        assertThat(pause(id).state()).isEqualTo(BoxState.PAUSED);
        assertThat(text(all(node.attach(id, ended.id(), 0)), StandardStream.STDOUT))
                .isEqualTo("a\nb\n");
        assertThat(text(all(node.execute(id, ended)), StandardStream.STDOUT)).isEqualTo("a\nb\n");
        try (OutputReader reader = node.readOutput(id, ended.id(), StandardStream.STDOUT, 2, true)) {
            assertThat(StandardCharsets.UTF_8
                            .decode(reader.next().orElseThrow().data())
                            .toString())
                    .isEqualTo("b\n");
        }
        try (OutputReader reader = node.processes().read(id, program.id(), OutputChoice.STDOUT, 0, false)) {
            assertThat(StandardCharsets.UTF_8
                            .decode(reader.next().orElseThrow().data())
                            .toString())
                    .isEqualTo("c\n");
        }
        assertThat(node.processes().list(Optional.of(id))).hasSize(1);
        assertThat(node.executions()).hasSize(1);
        said.close();
    }

    @Test
    void whoever_follows_something_in_a_paused_box_hears_nothing_until_it_is_resumed() throws Exception {
        BoxId id = box(sandbox);
        ExecutionSpec spec = code("wait gate\nprint done");
        NodeStream<NodeEvent> events = node.execute(id, spec);
        assertThat(events.next()).isPresent();
        ProcessSpec program = program("wait gate\nexit 3");
        assertThat(node.processes().start(id, program).id()).isEqualTo(program.id());
        CompletableFuture<NodeProcess> end = node.processes().ended(id, program.id());
        assertThat(pause(id).state()).isEqualTo(BoxState.PAUSED);
        fake.open("gate");
        assertThat(node.executions().getFirst().running()).isTrue();
        assertThat(end).isNotDone();
        assertThat(resume(id).state()).isEqualTo(BoxState.READY);
        List<NodeEvent> rest = all(events);
        assertThat(text(rest, StandardStream.STDOUT)).isEqualTo("done\n");
        assertThat(finish(rest).reason()).isEqualTo(ExitReason.COMPLETED);
        assertThat(end.get(30, TimeUnit.SECONDS).finish().orElseThrow().exitCode())
                .isEqualTo(OptionalInt.of(3));
    }

    @Test
    void a_call_that_meets_a_pause_waits_for_how_it_ends() throws Exception {
        BoxId id = box(sandbox);
        run(id, "set x 7");
        var hold = fake.hold(FakeCall.PAUSE_BOX, FakeCall.Step.MIDWAY);
        CompletableFuture<Box> pausing = later(() -> pause(id));
        hold.awaitReached();
        assertThat(state(id)).isEqualTo(BoxState.PAUSING);
        CompletableFuture<Integer> asking = later(() -> node.contexts(id).size());
        hold.release();
        assertThat(pausing.get(30, TimeUnit.SECONDS).state()).isEqualTo(BoxState.PAUSED);
        assertThatThrownBy(() -> asking.get(30, TimeUnit.SECONDS)).cause().hasMessageContaining("paused");
    }

    @Test
    void after_a_resume_that_failed_the_box_is_still_paused() throws Exception {
        BoxId id = box(sandbox);
        run(id, "set x 7");
        SnapshotId snapshot = SnapshotId.random();
        assertThat(node.pauseBox(id, snapshot).state()).isEqualTo(BoxState.PAUSED);
        fake.failOnce(FakeCall.RESUME_BOX, FakeCall.Step.MIDWAY, FakeNode.error(ErrorCode.INTERNAL, "not restored"));
        assertFails(ErrorCode.INTERNAL, () -> resume(id));
        assertThat(state(id)).isEqualTo(BoxState.PAUSED);
        assertThat(node.box(id).orElseThrow().pausedIn()).contains(snapshot);
        assertThat(resume(id).state()).isEqualTo(BoxState.READY);
        assertThat(run(id, "get x")).isEqualTo("7\n");
    }

    @Test
    void a_resumed_box_has_what_its_assignment_says() throws Exception {
        BoxId id = box(sandbox);
        assertThat(pause(id).state()).isEqualTo(BoxState.PAUSED);
        Limits d = Limits.DEFAULT;
        Limits more = new Limits(2 * d.memoryBytes(), 2000, 2 * d.diskBytes(), 99, d.maxOpenFiles());
        Instant deadline = Instant.parse("2026-02-03T04:05:06.007Z");
        Box resumed = node.resumeBox(
                id,
                Optional.empty(),
                new BoxAssignment(sandbox, "host", Map.of("NAME", "value"), more, Optional.of(deadline)));
        assertThat(resumed.limits())
                .contains(new Limits(2 * d.memoryBytes(), 2000, d.diskBytes(), 99, d.maxOpenFiles()));
        assertThat(resumed.deadline()).contains(deadline);
        assertThat(run(id, "env NAME")).isEqualTo("value\n");
        assertThat(pause(id).state()).isEqualTo(BoxState.PAUSED);
        assertFails(ErrorCode.CONFLICT, () -> node.resumeBox(id, Optional.empty(), assignment(SandboxId.random())));
        assertThat(state(id)).isEqualTo(BoxState.PAUSED);
    }

    @Test
    void a_watch_tells_each_state_of_a_pause_and_a_resume() throws Exception {
        BoxId id = box(sandbox);
        try (NodeStream<Box> watch = node.watchBoxes()) {
            assertThat(watch.next().orElseThrow().state()).isEqualTo(BoxState.READY);
            SnapshotId snapshot = SnapshotId.random();
            assertThat(node.pauseBox(id, snapshot).state()).isEqualTo(BoxState.PAUSED);
            Box pausing = watch.next().orElseThrow();
            assertThat(pausing.state()).isEqualTo(BoxState.PAUSING);
            assertThat(pausing.pausedIn()).contains(snapshot);
            assertThat(watch.next().orElseThrow().state()).isEqualTo(BoxState.PAUSED);
            assertThat(resume(id).state()).isEqualTo(BoxState.READY);
            assertThat(watch.next().orElseThrow().state()).isEqualTo(BoxState.RESUMING);
            assertThat(watch.next().orElseThrow().state()).isEqualTo(BoxState.READY);
        }
    }

    @Test
    void a_box_is_deleted_in_whatever_state_it_is() throws Exception {
        BoxId paused = box(sandbox);
        assertThat(pause(paused).state()).isEqualTo(BoxState.PAUSED);
        node.deleteBox(paused);
        assertThat(node.box(paused)).isEmpty();
        assertThat(fake.stored().pauses()).isZero();
        assertFails(ErrorCode.NOT_FOUND, () -> resume(paused));

        BoxId pausing = box(SandboxId.random());
        var hold = fake.hold(FakeCall.PAUSE_BOX, FakeCall.Step.MIDWAY);
        CompletableFuture<Box> pause = later(() -> pause(pausing));
        hold.awaitReached();
        node.deleteBox(pausing);
        hold.release();
        assertThatThrownBy(() -> pause.get(30, TimeUnit.SECONDS)).isNotNull();
        assertThat(node.box(pausing)).isEmpty();
        assertThat(fake.stored().pauses()).isZero();
    }

    @Test
    void a_box_that_is_not_there_or_has_ended_is_not_paused() {
        assertFails(ErrorCode.NOT_FOUND, () -> pause(BoxId.random()));
        BoxId id = box(sandbox);
        fake.end(id, EndReason.CRASHED, "gone");
        assertFails(ErrorCode.CONFLICT, () -> pause(id));
        assertFails(ErrorCode.CONFLICT, () -> resume(id));
        assertFails(ErrorCode.CONFLICT, () -> snapshot(id, SnapshotKind.MEMORY));
    }

    @Test
    void a_deadline_is_set_moved_and_taken_away() {
        BoxId id = box(sandbox);
        assertThat(node.box(id).orElseThrow().deadline()).isEmpty();
        Instant deadline = Instant.parse("2026-02-03T04:05:06.007Z");
        BoxAssignment with = new BoxAssignment(sandbox, "host", Map.of(), Limits.DEFAULT, Optional.of(deadline));
        assertThat(node.assignBox(id, with).deadline()).contains(deadline);
        node.setDeadline(id, Optional.of(deadline.plusSeconds(5)));
        assertThat(node.box(id).orElseThrow().deadline()).contains(deadline.plusSeconds(5));
        node.setDeadline(id, Optional.empty());
        assertThat(node.box(id).orElseThrow().deadline()).isEmpty();
        assertFails(ErrorCode.NOT_FOUND, () -> node.setDeadline(BoxId.random(), Optional.empty()));
    }

    @Test
    void a_box_whose_deadline_passed_has_expired() {
        BoxId id = box(sandbox);
        fake.end(id, EndReason.EXPIRED, "its deadline had passed");
        assertThat(node.box(id).orElseThrow().end().orElseThrow().reason()).isEqualTo(EndReason.EXPIRED);
    }

    // Snapshots and what is made from them.

    @Test
    void a_snapshot_tells_what_it_is() {
        BoxId id = box(sandbox);
        SnapshotId snapshot = SnapshotId.random();
        NodeSnapshot made = node.createSnapshot(id, snapshot, SnapshotKind.MEMORY, Map.of("a", "b"));
        assertThat(made)
                .isEqualTo(new NodeSnapshot(
                        snapshot,
                        SnapshotKind.MEMORY,
                        Map.of("a", "b"),
                        Optional.of(id),
                        Optional.of(sandbox),
                        node.images().get(1).digest(),
                        "1",
                        MIB,
                        FakeNode.START,
                        Limits.DEFAULT,
                        List.of(new NodeSnapshot.Held(context, Language.PYTHON)),
                        Optional.empty(),
                        Duration.ofMillis(14)));
        assertThat(node.createSnapshot(id, snapshot, SnapshotKind.MEMORY, Map.of()))
                .isEqualTo(made);
        assertThat(node.snapshots()).containsExactly(made);
        assertThat(state(id)).isEqualTo(BoxState.READY);
        node.deleteSnapshot(snapshot);
        node.deleteSnapshot(snapshot);
        assertThat(node.snapshots()).isEmpty();
    }

    @Test
    void an_id_of_a_snapshot_is_used_once() throws Exception {
        BoxId id = box(sandbox);
        SnapshotId snapshot = snapshot(id, SnapshotKind.MEMORY);
        byte[] file = exported(snapshot);
        assertFails(ErrorCode.CONFLICT, () -> node.createSnapshot(id, snapshot, SnapshotKind.FILES, Map.of()));
        assertFails(
                ErrorCode.CONFLICT,
                () -> node.importSnapshot(snapshot, Map.of(), List.of(), new ByteArrayInputStream(file)));
        assertFails(ErrorCode.CONFLICT, () -> node.pauseBox(id, snapshot));
        SnapshotId paused = SnapshotId.random();
        assertThat(node.pauseBox(id, paused).state()).isEqualTo(BoxState.PAUSED);
        assertFails(ErrorCode.CONFLICT, () -> node.createSnapshot(id, paused, SnapshotKind.MEMORY, Map.of()));
        assertThat(node.snapshots()).hasSize(1);
    }

    @Test
    void what_a_paused_box_is_goes_with_it_and_not_alone() {
        BoxId id = box(sandbox);
        SnapshotId paused = SnapshotId.random();
        assertThat(node.pauseBox(id, paused).state()).isEqualTo(BoxState.PAUSED);
        assertFails(ErrorCode.CONFLICT, () -> node.deleteSnapshot(paused));
        assertFails(ErrorCode.SNAPSHOT_NOT_FOUND, () -> node.exportSnapshot(paused));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> snapshot(id, SnapshotKind.FILES));
        assertThat(resume(id).state()).isEqualTo(BoxState.READY);
        node.deleteSnapshot(paused);
    }

    @Test
    void boxes_from_a_snapshot_start_where_it_was_made_and_go_apart() throws Exception {
        BoxId source = box(sandbox);
        run(source, "set x 1");
        write(source, "f", "one");
        fake.portsOf(source).listen(8080, "127.0.0.1");
        SnapshotId snapshot = snapshot(source, SnapshotKind.MEMORY);
        run(source, "set x 2");
        write(source, "f", "two");
        ContextId renamed = ContextId.random();
        BoxId first = BoxId.random();
        BoxId second = BoxId.random();
        Box restored = node.restoreBox(first, from(snapshot, Map.of(context, renamed)));
        assertThat(restored.state()).isEqualTo(BoxState.READY);
        assertThat(restored.restoredFrom()).contains(snapshot);
        assertThat(restored.contexts()).containsExactly(new NodeSnapshot.Held(renamed, Language.PYTHON));
        assertThat(restored.sandboxId()).isEmpty();
        assertThat(node.restoreBox(second, from(snapshot)).contexts())
                .containsExactly(new NodeSnapshot.Held(context, Language.PYTHON));
        assertThat(run(first, renamed, "get x")).isEqualTo("1\n");
        assertThat(read(first, "f")).isEqualTo("one");
        assertThat(node.ports(first)).hasSize(1);
        run(first, renamed, "set x 3");
        write(first, "f", "three");
        assertThat(run(second, "get x")).isEqualTo("1\n");
        assertThat(read(second, "f")).isEqualTo("one");
        assertThat(run(source, "get x")).isEqualTo("2\n");
        node.deleteSnapshot(snapshot);
        assertThat(run(first, renamed, "get x")).isEqualTo("3\n");
        assertThat(node.assignBox(second, assignment(SandboxId.random())).state())
                .isEqualTo(BoxState.READY);
    }

    @Test
    void a_restored_box_is_assigned_at_once_if_that_is_asked_for() throws Exception {
        SnapshotId snapshot = snapshot(box(sandbox), SnapshotKind.MEMORY);
        SandboxId other = SandboxId.random();
        Limits d = Limits.DEFAULT;
        Limits more = new Limits(2 * d.memoryBytes(), 0, 2 * d.diskBytes(), d.maxProcesses(), d.maxOpenFiles());
        BoxId id = BoxId.random();
        Box restored = node.restoreBox(
                id,
                new RestoreBox(
                        Optional.of(snapshot),
                        Optional.empty(),
                        Optional.empty(),
                        Optional.of(new BoxAssignment(other, "host", Map.of("NAME", "value"), more)),
                        Map.of(),
                        List.of(),
                        Map.of("pool", "p"),
                        Optional.of(more)));
        assertThat(restored.sandboxId()).contains(other);
        assertThat(restored.labels()).containsEntry("pool", "p");
        assertThat(restored.limits())
                .contains(new Limits(2 * d.memoryBytes(), 0, d.diskBytes(), d.maxProcesses(), d.maxOpenFiles()));
        assertThat(run(id, "env NAME")).isEqualTo("value\n");
    }

    @Test
    void what_ran_in_the_source_goes_on_in_a_fork_and_nobody_hears_it() throws Exception {
        BoxId source = box(sandbox);
        run(source, "set x 1");
        NodeStream<NodeEvent> events = node.execute(source, code("wait gate\nset x 2"));
        assertThat(events.next()).isPresent();
        SnapshotId snapshot = snapshot(source, SnapshotKind.MEMORY);
        BoxId fork = BoxId.random();
        assertThat(node.restoreBox(fork, from(snapshot)).state()).isEqualTo(BoxState.READY);
        assertThat(node.executions()).extracting(NodeExecution::box).containsOnly(source);
        assertThat(run(fork, "get x")).isEqualTo("1\n");
        node.deleteBox(source);
        fake.open("gate");
        String last = "";
        for (int tries = 0; tries < 1000 && !last.equals("2\n"); tries++) {
            last = run(fork, "get x");
        }
        assertThat(last).isEqualTo("2\n");
    }

    @Test
    void a_snapshot_of_files_leaves_out_what_was_in_memory() throws Exception {
        BoxId source = box(sandbox);
        run(source, "set x 1");
        write(source, "f", "one");
        SnapshotId snapshot = snapshot(source, SnapshotKind.FILES);
        assertThat(node.snapshots().getFirst().kind()).isEqualTo(SnapshotKind.FILES);
        assertThat(node.snapshots().getFirst().contexts()).isEmpty();
        ContextId warm = ContextId.random();
        BoxId id = BoxId.random();
        Box restored = node.restoreBox(
                id,
                new RestoreBox(
                        Optional.of(snapshot),
                        Optional.empty(),
                        Optional.empty(),
                        Optional.empty(),
                        Map.of(),
                        List.of(ContextSpec.of(warm, Language.PYTHON)),
                        Map.of(),
                        Optional.empty()));
        assertThat(restored.contexts()).containsExactly(new NodeSnapshot.Held(warm, Language.PYTHON));
        assertThat(read(id, "f")).isEqualTo("one");
        assertThat(run(id, warm, "get x")).isEqualTo("undefined\n");
    }

    @Test
    void a_paused_box_can_be_snapshotted_and_forked_and_stays_paused() throws Exception {
        BoxId source = box(sandbox);
        run(source, "set x 1");
        assertThat(pause(source).state()).isEqualTo(BoxState.PAUSED);
        SnapshotId snapshot = snapshot(source, SnapshotKind.MEMORY);
        BoxId fork = BoxId.random();
        RestoreBox request = new RestoreBox(
                Optional.empty(),
                Optional.of(source),
                Optional.empty(),
                Optional.empty(),
                Map.of(),
                List.of(),
                Map.of(),
                Optional.empty());
        assertThat(node.restoreBox(fork, request).state()).isEqualTo(BoxState.READY);
        assertThat(state(source)).isEqualTo(BoxState.PAUSED);
        assertThat(run(fork, "get x")).isEqualTo("1\n");
        assertThat(resume(source).state()).isEqualTo(BoxState.READY);
        run(source, "set x 2");
        BoxId later = BoxId.random();
        assertThat(node.restoreBox(later, from(snapshot)).state()).isEqualTo(BoxState.READY);
        assertThat(run(later, "get x")).isEqualTo("1\n");
        assertFails(ErrorCode.CONFLICT, () -> node.restoreBox(BoxId.random(), request));
    }

    @Test
    void a_restore_is_done_once_and_leaves_nothing_if_it_fails() {
        SnapshotId snapshot = snapshot(box(sandbox), SnapshotKind.MEMORY);
        BoxId id = BoxId.random();
        fake.failOnce(FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY, FakeNode.error(ErrorCode.INTERNAL, "not restored"));
        assertFails(ErrorCode.INTERNAL, () -> node.restoreBox(id, from(snapshot)));
        assertThat(node.box(id)).isEmpty();
        fake.failOnce(FakeCall.RESTORE_BOX, FakeCall.Step.AFTER, FakeNode.unavailable());
        assertFails(ErrorCode.NODE_UNAVAILABLE, () -> node.restoreBox(id, from(snapshot)));
        assertThat(node.restoreBox(id, from(snapshot)).state()).isEqualTo(BoxState.READY);
        assertThat(fake.stored().restored()).isEqualTo(1);
        assertThat(node.snapshots()).hasSize(1);
    }

    @Test
    void what_can_not_be_restored_says_why() {
        assertFails(ErrorCode.SNAPSHOT_NOT_FOUND, () -> node.restoreBox(BoxId.random(), from(SnapshotId.random())));
        BoxId id = box(sandbox);
        SnapshotId snapshot = snapshot(id, SnapshotKind.MEMORY);
        fake.stored().spoil(snapshot, "it changed since it was made");
        assertThat(node.snapshots().getFirst().unusable()).contains("it changed since it was made");
        assertThatThrownBy(() -> node.restoreBox(BoxId.random(), from(snapshot)))
                .hasMessageContaining("it changed since it was made");
        assertFails(ErrorCode.SNAPSHOT_UNUSABLE, () -> node.restoreBox(BoxId.random(), from(snapshot)));
        assertFails(
                ErrorCode.SNAPSHOT_UNUSABLE,
                () -> node.rollbackBox(id, snapshot, Optional.empty(), assignment(sandbox)));
        SnapshotId paused = SnapshotId.random();
        assertThat(node.pauseBox(id, paused).state()).isEqualTo(BoxState.PAUSED);
        fake.stored().spoil(paused, "it changed since it was made");
        assertFails(ErrorCode.SNAPSHOT_UNUSABLE, () -> resume(id));
        assertThat(state(id)).isEqualTo(BoxState.PAUSED);
    }

    @Test
    void a_snapshot_whose_description_is_damaged_is_listed_refused_and_removed() {
        BoxId id = box(sandbox);
        SnapshotId snapshot = snapshot(id, SnapshotKind.MEMORY);
        fake.stored().damage(snapshot, "its manifest is damaged");
        NodeSnapshot seen = node.snapshots().getFirst();
        assertThat(seen.id()).isEqualTo(snapshot);
        assertThat(seen.unusable()).contains("its manifest is damaged");
        assertThat(seen.box()).isEmpty();
        assertThat(seen.sandbox()).isEmpty();
        assertFails(ErrorCode.SNAPSHOT_UNUSABLE, () -> node.restoreBox(BoxId.random(), from(snapshot)));
        node.deleteSnapshot(snapshot);
        assertThat(node.snapshots()).isEmpty();
    }

    @Test
    void a_snapshot_whose_image_is_gone_is_listed_and_refused() {
        SnapshotId snapshot = snapshot(box(sandbox), SnapshotKind.MEMORY);
        fake.setImages(List.of());
        assertThat(node.snapshots().getFirst().unusable()).isPresent();
        assertFails(ErrorCode.SNAPSHOT_UNUSABLE, () -> node.restoreBox(BoxId.random(), from(snapshot)));
    }

    private BoxId prepared(Limits limits) {
        BoxId id = BoxId.random();
        BoxSpec spec = new BoxSpec(node.images().get(1).digest(), limits, List.of(), Map.of("pool", "p"));
        Box prepared = node.prepareBox(id, spec);
        assertThat(prepared.state()).isEqualTo(BoxState.PREPARED);
        assertThat(prepared.labels()).containsEntry("pool", "p");
        assertThat(node.prepareBox(id, spec)).isEqualTo(prepared);
        return id;
    }

    @Test
    void a_prepared_box_becomes_part_of_the_one_that_is_restored_in_it() {
        BoxId source = box(sandbox);
        SnapshotId snapshot = snapshot(source, SnapshotKind.MEMORY);
        BoxId prepared = prepared(Limits.DEFAULT);
        assertThat(node.boxes()).hasSize(2);
        assertFails(ErrorCode.CONFLICT, () -> node.contexts(prepared));
        BoxId id = BoxId.random();
        assertThat(node.restoreBox(id, withPrepared(snapshot, prepared)).state())
                .isEqualTo(BoxState.READY);
        assertThat(node.box(prepared)).isEmpty();
        BoxId another = prepared(Limits.DEFAULT);
        assertThat(pause(source).state()).isEqualTo(BoxState.PAUSED);
        assertThat(node.resumeBox(source, Optional.of(another), assignment(sandbox))
                        .state())
                .isEqualTo(BoxState.READY);
        assertThat(node.box(another)).isEmpty();
        assertThat(fake.stored().preparedUsed()).isEqualTo(2);
    }

    @Test
    void a_prepared_box_that_is_gone_or_does_not_fit_is_done_without() {
        SnapshotId snapshot = snapshot(box(sandbox), SnapshotKind.MEMORY);
        Limits d = Limits.DEFAULT;
        BoxId other = prepared(new Limits(d.memoryBytes(), 0, 2 * d.diskBytes(), d.maxProcesses(), d.maxOpenFiles()));
        for (BoxId unfit : List.of(BoxId.random(), other)) {
            assertThat(node.restoreBox(BoxId.random(), withPrepared(snapshot, unfit))
                            .state())
                    .isEqualTo(BoxState.READY);
        }
        assertThat(state(other)).isEqualTo(BoxState.PREPARED);
        node.deleteBox(other);
        assertThat(node.box(other)).isEmpty();
    }

    // Rollback.

    @Test
    void a_box_is_put_back_to_a_snapshot_of_itself() throws Exception {
        BoxId id = box(sandbox);
        run(id, "set x 1");
        write(id, "f", "one");
        SnapshotId snapshot = snapshot(id, SnapshotKind.MEMORY);
        run(id, "set x 2");
        write(id, "f", "two");
        ContextId later = ContextId.random();
        assertThat(node.openContext(id, ContextSpec.of(later, Language.BASH)).id())
                .isEqualTo(later);
        ExecutionSpec since = code("wait never");
        NodeStream<NodeEvent> events = node.execute(id, since);
        assertThat(events.next()).isPresent();
        ProcessSpec program = program("wait never");
        assertThat(node.processes().start(id, program).id()).isEqualTo(program.id());
        Box back = node.rollbackBox(id, snapshot, Optional.empty(), assignment(sandbox));
        assertThat(back.state()).isEqualTo(BoxState.READY);
        assertThat(back.contexts()).containsExactly(new NodeSnapshot.Held(context, Language.PYTHON));
        assertThat(run(id, "get x")).isEqualTo("1\n");
        assertThat(read(id, "f")).isEqualTo("one");
        NodeEvent.Finish end = finish(all(events));
        assertThat(end.reason()).isEqualTo(ExitReason.LOST);
        assertThat(end.detail()).contains(snapshot.toString());
        assertThat(node.processes()
                        .ended(id, program.id())
                        .get(30, TimeUnit.SECONDS)
                        .finish()
                        .orElseThrow()
                        .reason())
                .isEqualTo(ExitReason.LOST);
        assertThat(node.snapshots()).hasSize(1);
    }

    @Test
    void after_a_rollback_that_failed_the_box_is_as_it_was() throws Exception {
        BoxId id = box(sandbox);
        run(id, "set x 1");
        SnapshotId snapshot = snapshot(id, SnapshotKind.MEMORY);
        run(id, "set x 2");
        NodeStream<NodeEvent> events = node.execute(id, code("wait gate\nprint done"));
        assertThat(events.next()).isPresent();
        fake.failOnce(FakeCall.ROLLBACK_BOX, FakeCall.Step.MIDWAY, FakeNode.error(ErrorCode.INTERNAL, "no"));
        assertFails(ErrorCode.INTERNAL, () -> node.rollbackBox(id, snapshot, Optional.empty(), assignment(sandbox)));
        assertThat(state(id)).isEqualTo(BoxState.READY);
        assertThat(run(id, "get x")).isEqualTo("2\n");
        fake.open("gate");
        assertThat(text(all(events), StandardStream.STDOUT)).isEqualTo("done\n");
        assertFails(
                ErrorCode.SNAPSHOT_NOT_FOUND,
                () -> node.rollbackBox(id, SnapshotId.random(), Optional.empty(), assignment(sandbox)));
        SandboxId other = SandboxId.random();
        BoxId another = box(other);
        assertFails(
                ErrorCode.SNAPSHOT_UNUSABLE,
                () -> node.rollbackBox(another, snapshot, Optional.empty(), assignment(other)));
    }

    // Files of snapshots.

    private byte[] exported(SnapshotId id) throws IOException {
        try (InputStream file = node.exportSnapshot(id)) {
            return file.readAllBytes();
        }
    }

    private void assertNothingUnderWay() {
        Eventually.until(
                () -> fake.stored().transfers() == 0, () -> fake.stored().transfers());
    }

    @Test
    void a_snapshot_goes_out_as_a_file_and_in_on_another_node() throws Exception {
        BoxId source = box(sandbox);
        run(source, "set x 1");
        byte[] file = exported(snapshot(source, SnapshotKind.MEMORY));
        assertThat(file.length).isGreaterThan((int) MIB);
        FakeNode far = new FakeNode();
        far.stored().setKey("cd".repeat(32));
        Node other = node(far);
        other.claim(1);
        SnapshotId id = SnapshotId.random();
        assertThatThrownBy(() -> other.importSnapshot(id, Map.of(), List.of(), new ByteArrayInputStream(file)))
                .hasMessageContaining(node.info().snapshotKey());
        assertThat(other.snapshots()).isEmpty();
        NodeSnapshot imported = other.importSnapshot(
                id, Map.of("a", "b"), List.of(node.info().snapshotKey()), new ByteArrayInputStream(file));
        assertThat(imported.id()).isEqualTo(id);
        assertThat(imported.labels()).containsExactly(Map.entry("a", "b"));
        assertThat(imported.sandbox()).contains(sandbox);
        assertThat(imported.sizeBytes()).isEqualTo(MIB);
        assertThat(other.snapshots()).containsExactly(imported);
        BoxId restored = BoxId.random();
        assertThat(other.restoreBox(restored, from(id)).state()).isEqualTo(BoxState.READY);
        assertThat(text(all(other.execute(restored, code("get x"))), StandardStream.STDOUT))
                .isEqualTo("1\n");
        other.close();
        assertNothingUnderWay();
    }

    @Test
    void a_file_that_is_damaged_or_cut_off_is_refused_and_leaves_nothing() throws Exception {
        SnapshotId snapshot = snapshot(box(sandbox), SnapshotKind.MEMORY);
        byte[] whole = exported(snapshot);
        byte[] damaged = whole.clone();
        damaged[whole.length - 1000] ^= 1;
        byte[] longer = Arrays.copyOf(whole, whole.length + 1);
        List<byte[]> bad = List.of(
                damaged, longer, Arrays.copyOf(whole, whole.length - 1), Arrays.copyOf(whole, 100), new byte[0]);
        for (byte[] file : bad) {
            assertFails(
                    ErrorCode.SNAPSHOT_UNUSABLE,
                    () -> node.importSnapshot(
                            SnapshotId.random(), Map.of(), List.of(), new ByteArrayInputStream(file)));
        }
        assertThat(node.snapshots()).hasSize(1);
        assertNothingUnderWay();
    }

    @Test
    void an_import_for_which_the_disk_has_no_room_is_refused() throws Exception {
        byte[] file = exported(snapshot(box(sandbox), SnapshotKind.MEMORY));
        fake.setDisk(1L << 40, 0);
        assertFails(
                ErrorCode.DISK_FULL,
                () -> node.importSnapshot(SnapshotId.random(), Map.of(), List.of(), new ByteArrayInputStream(file)));
        assertThat(node.snapshots()).hasSize(1);
    }

    @Test
    void an_export_of_what_is_not_there_is_refused_at_once() {
        assertFails(ErrorCode.SNAPSHOT_NOT_FOUND, () -> node.exportSnapshot(SnapshotId.random()));
        assertNothingUnderWay();
    }

    @Test
    void an_export_is_held_back_by_its_reader_and_can_be_broken_off() throws Exception {
        fake.stored().makeLarge(1L << 38);
        SnapshotId snapshot = snapshot(box(sandbox), SnapshotKind.MEMORY);
        try (InputStream file = node.exportSnapshot(snapshot)) {
            byte[] some = new byte[(int) MIB];
            for (int read = 1; read <= 64; read++) {
                assertThat(file.readNBytes(some, 0, some.length)).isEqualTo(some.length);
                assertThat(fake.stored().exported()).isLessThan((read + 16) * MIB);
            }
        }
        assertNothingUnderWay();
    }

    @Test
    void an_export_breaks_when_the_node_goes_away() throws Exception {
        fake.stored().makeLarge(1L << 38);
        SnapshotId snapshot = snapshot(box(sandbox), SnapshotKind.MEMORY);
        InputStream file = node.exportSnapshot(snapshot);
        assertThat(file.read()).isNotNegative();
        fake.goAway();
        byte[] some = new byte[(int) MIB];
        assertThatThrownBy(() -> {
                    for (int read = 0; read < 1000; read++) {
                        assertThat(file.readNBytes(some, 0, some.length)).isEqualTo(some.length);
                    }
                })
                .isInstanceOf(IOException.class);
        file.close();
        fake.comeBack();
        assertNothingUnderWay();
    }

    /** A file that tells the test how much of it was asked for. */
    private abstract static class Source extends InputStream {
        private final InputStream file;
        private final AtomicLong given = new AtomicLong();

        Source(InputStream file) {
            this.file = file;
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] into, int from, int most) throws IOException {
            before(given.get());
            int count = file.read(into, from, most);
            given.addAndGet(Math.max(0, count));
            return count;
        }

        abstract void before(long bytes) throws IOException;

        @Override
        public void close() throws IOException {
            file.close();
        }
    }

    @Test
    void an_import_takes_a_large_file_no_faster_than_the_node_does() throws Exception {
        fake.stored().makeLarge(96 * MIB);
        SnapshotId snapshot = snapshot(box(sandbox), SnapshotKind.MEMORY);
        SnapshotId copy = SnapshotId.random();
        var source = new Source(fake.exportSnapshot(snapshot)) {
            private long most;

            @Override
            void before(long bytes) {
                most = Math.max(most, bytes - fake.stored().imported());
            }
        };
        NodeSnapshot imported = node.importSnapshot(copy, Map.of(), List.of(), source);
        source.close();
        assertThat(source.most).isLessThan(16 * MIB);
        assertThat(imported.sizeBytes()).isEqualTo(96 * MIB);
        assertNothingUnderWay();
    }

    @Test
    void an_import_whose_source_breaks_leaves_nothing() throws Exception {
        fake.stored().makeLarge(96 * MIB);
        SnapshotId snapshot = snapshot(box(sandbox), SnapshotKind.MEMORY);
        IOException broken = new IOException("the caller went away");
        var source = new Source(fake.exportSnapshot(snapshot)) {
            @Override
            void before(long bytes) throws IOException {
                if (bytes > 8 * MIB) {
                    throw broken;
                }
            }
        };
        assertThatThrownBy(() -> node.importSnapshot(SnapshotId.random(), Map.of(), List.of(), source))
                .isSameAs(broken);
        source.close();
        assertNothingUnderWay();
        assertThat(node.snapshots()).hasSize(1);
    }

    @Test
    void a_server_that_was_replaced_changes_nothing() {
        BoxId id = box(sandbox);
        SnapshotId snapshot = snapshot(id, SnapshotKind.MEMORY);
        fake.claimForAnother();
        assertFails(ErrorCode.CONFLICT, () -> pause(id));
        assertFails(ErrorCode.CONFLICT, () -> snapshot(id, SnapshotKind.MEMORY));
        assertFails(ErrorCode.CONFLICT, () -> node.deleteSnapshot(snapshot));
        assertFails(ErrorCode.CONFLICT, () -> node.restoreBox(BoxId.random(), from(snapshot)));
        assertFails(ErrorCode.CONFLICT, () -> node.setDeadline(id, Optional.empty()));
        assertThat(node.snapshots()).hasSize(1);
        assertThat(state(id)).isEqualTo(BoxState.READY);
    }
}
