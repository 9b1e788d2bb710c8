package atoll.core.testing;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.ProcessId;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReader;
import atoll.core.file.FileWriter;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;
import atoll.core.node.BoxState;
import atoll.core.node.ContextSpec;
import atoll.core.node.EventFollower;
import atoll.core.node.ExecutionSpec;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeStream;
import atoll.core.node.OutputFollower;
import atoll.core.node.PatientNode;
import atoll.core.node.ProcessSpec;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What {@link PatientNode} makes of pauses, whichever way its node refuses: some say so at once, some with the first read. */
public abstract class PatientNodeContract extends NodeFixture {
    private final SandboxId sandbox = SandboxId.random();
    private final AtomicInteger resumes = new AtomicInteger();

    @SuppressWarnings("NullAway.Init") // Before each test.
    private PatientNode patient;

    @BeforeEach
    void patiently() {
        patient = new PatientNode(node, Duration.ofSeconds(30));
        patient.claim(1);
    }

    private void resumeOnUse() {
        patient.onPaused(box -> {
            resumes.incrementAndGet();
            return patient.resumeBox(box, Optional.empty(), assignment(sandbox)).state() == BoxState.READY;
        });
    }

    private BoxId paused() {
        BoxId id = box(sandbox);
        pause(id);
        return id;
    }

    private void pause(BoxId id) {
        assertThat(patient.pauseBox(id, SnapshotId.random()).state()).isEqualTo(BoxState.PAUSED);
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

    private static WriteFile to(String path, WriteFile.Mode mode) {
        return new WriteFile(
                path, mode, 0, OptionalInt.empty(), true, Optional.empty(), Map.of(), OptionalLong.empty());
    }

    @Test
    void a_call_that_needs_a_paused_box_is_made_again_when_it_runs() throws Exception {
        BoxId id = paused();
        resumeOnUse();
        assertThat(text(all(patient.execute(id, code("print a"))), StandardStream.STDOUT))
                .isEqualTo("a\n");
        pause(id);
        ContextSpec more = ContextSpec.of(ContextId.random(), Language.BASH);
        assertThat(patient.openContext(id, more).id()).isEqualTo(more.id());
        pause(id);
        ProcessSpec program = program("cat");
        assertThat(patient.processes().start(id, program).id()).isEqualTo(program.id());
        pause(id);
        ByteBuffer input = ByteBuffer.wrap("x".getBytes(StandardCharsets.UTF_8));
        assertThat(patient.processes()
                        .write(id, program.id(), OptionalLong.empty(), input, false, Duration.ofSeconds(30))
                        .offset())
                .isEqualTo(1);
        pause(id);
        try (FileWriter writer = patient.writeFile(id, "", to("f", WriteFile.Mode.APPEND))) {
            writer.write(ByteBuffer.wrap(new byte[3]));
            assertThat(writer.commit().bytes()).isEqualTo(3);
        }
        pause(id);
        assertThat(patient.file(id, "", new FileOperation.Stat("f", true, false))
                        .file())
                .isPresent();
        pause(id);
        assertThat(patient.file(id, "", new FileOperation.Move("f", "g", false, false))
                        .file())
                .isPresent();
        pause(id);
        try (var watch = patient.watchFiles(id, "", "/home/user", true)) {
            assertThat(watch.next()).isPresent();
        }
        pause(id);
        assertThat(patient.ports(id)).isEmpty();
        assertThat(resumes).hasValue(9);
    }

    @Test
    void without_a_resume_the_caller_is_told_that_the_box_is_paused() {
        BoxId id = paused();
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> patient.contexts(id));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> all(patient.execute(id, code("print a"))));
        AtomicInteger asked = new AtomicInteger();
        patient.onPaused(box -> {
            assertThat(box).isEqualTo(id);
            asked.incrementAndGet();
            return false;
        });
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> patient.contexts(id));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> all(patient.execute(id, code("print a"))));
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> patient.writeFile(id, "", to("f", WriteFile.Mode.APPEND)));
        assertThat(asked).hasValue(3);
        assertThat(node.box(id).orElseThrow().state()).isEqualTo(BoxState.PAUSED);
    }

    @Test
    void a_resume_that_failed_fails_the_call() {
        BoxId id = paused();
        patient.onPaused(_ -> {
            throw FakeNode.error(ErrorCode.NODE_FULL, "no memory left");
        });
        assertFails(ErrorCode.NODE_FULL, () -> patient.contexts(id));
        assertFails(ErrorCode.NODE_FULL, () -> all(patient.execute(id, code("print a"))));
    }

    @Test
    void a_box_that_is_paused_again_and_again_is_given_up_at_last() {
        BoxId id = paused();
        patient.onPaused(_ -> {
            resumes.incrementAndGet();
            return true;
        });
        assertFails(ErrorCode.SANDBOX_PAUSED, () -> patient.contexts(id));
        assertThat(resumes.get()).isBetween(2, 100);
    }

    @Test
    void calls_about_pauses_resume_nothing() {
        BoxId id = paused();
        resumeOnUse();
        assertThat(patient.box(id).orElseThrow().state()).isEqualTo(BoxState.PAUSED);
        patient.setDeadline(id, Optional.empty());
        SnapshotId snapshot = SnapshotId.random();
        assertThat(patient.createSnapshot(id, snapshot, atoll.core.snapshot.SnapshotKind.MEMORY, Map.of())
                        .id())
                .isEqualTo(snapshot);
        assertFails(
                ErrorCode.SANDBOX_PAUSED,
                () -> patient.rollbackBox(id, snapshot, Optional.empty(), assignment(sandbox)));
        pause(id);
        patient.deleteBox(id);
        assertThat(resumes).hasValue(0);
    }

    @Test
    void no_call_fails_because_of_a_pause_that_crossed_it() throws Exception {
        BoxId id = box(sandbox);
        resumeOnUse();
        var hold = fake.hold(FakeCall.PAUSE_BOX, FakeCall.Step.MIDWAY);
        CompletableFuture<BoxState> pausing =
                later(() -> patient.pauseBox(id, SnapshotId.random()).state());
        hold.awaitReached();
        CompletableFuture<Integer> listed = later(() -> patient.contexts(id).size());
        CompletableFuture<Long> uploaded = later(() -> {
            try (FileWriter writer = patient.writeFile(id, "", to("f", WriteFile.Mode.APPEND))) {
                return writer.commit().bytes();
            }
        });
        // Asked while the box is being paused, it waits for that.
        Eventually.until(() -> resumes.get() > 0, resumes::get);
        hold.release();
        assertThat(pausing.get(30, TimeUnit.SECONDS)).isEqualTo(BoxState.PAUSED);
        assertThat(listed.get(30, TimeUnit.SECONDS)).isEqualTo(1);
        assertThat(uploaded.get(30, TimeUnit.SECONDS)).isZero();
    }

    private void write(BoxId id, byte[] content) throws InterruptedException {
        try (FileWriter writer = patient.writeFile(id, "", to("f", WriteFile.Mode.REPLACE))) {
            for (int at = 0; at < content.length; at += FileWriter.LARGEST_PIECE) {
                int size = Math.min(FileWriter.LARGEST_PIECE, content.length - at);
                writer.write(ByteBuffer.wrap(content, at, size).slice());
            }
            assertThat(writer.commit().bytes()).isEqualTo(content.length);
        }
    }

    private static byte[] numbered(int size) {
        byte[] content = new byte[size];
        for (int i = 0; i < size; i++) {
            content[i] = (byte) (i * 31 + (i >> 10));
        }
        return content;
    }

    private static byte[] rest(FileReader reader) throws InterruptedException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (Optional<ByteBuffer> piece = reader.next(); piece.isPresent(); piece = reader.next()) {
            byte[] bytes = new byte[piece.get().remaining()];
            piece.get().duplicate().get(bytes);
            all.writeBytes(bytes);
        }
        return all.toByteArray();
    }

    @Test
    void a_file_is_read_on_where_a_pause_cut_it_off() throws Exception {
        BoxId id = box(sandbox);
        byte[] content = numbered(8 << 20);
        write(id, content);
        resumeOnUse();
        for (ReadFile what : List.of(ReadFile.whole("f"), new ReadFile("f", 1000, 7 << 20, Optional.empty()))) {
            try (FileReader reader = patient.readFile(id, "", what)) {
                byte[] first = new byte[reader.next().orElseThrow().remaining()];
                pause(id);
                int from = (int) what.offset() + first.length;
                int to = what.length() == 0 ? content.length : (int) (what.offset() + what.length());
                assertThat(rest(reader)).isEqualTo(Arrays.copyOfRange(content, from, to));
            }
        }
        assertThat(resumes).hasValue(2);
    }

    @Test
    void a_file_that_changed_after_a_pause_is_not_read_on() throws Exception {
        BoxId id = box(sandbox);
        write(id, numbered(8 << 20));
        patient.onPaused(box -> {
            boolean runs =
                    node.resumeBox(box, Optional.empty(), assignment(sandbox)).state() == BoxState.READY;
            try {
                write(id, new byte[8 << 20]);
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
            return runs;
        });
        try (FileReader reader = patient.readFile(id, "", ReadFile.whole("f"))) {
            assertThat(reader.next()).isPresent();
            pause(id);
            assertFails(ErrorCode.SANDBOX_PAUSED, () -> rest(reader));
        }
    }

    @Test
    void an_upload_that_a_pause_crossed_is_not_made_again() throws Exception {
        BoxId id = box(sandbox);
        resumeOnUse();
        FileWriter writer = patient.writeFile(id, "", to("f", WriteFile.Mode.REPLACE));
        writer.write(ByteBuffer.wrap(new byte[3]));
        pause(id);
        assertFails(ErrorCode.SANDBOX_PAUSED, writer::commit);
        writer.close();
        assertThat(resumes).hasValue(0);
    }

    @Test
    void an_execution_that_was_refused_is_under_way_again_before_it_counts_as_accepted() throws Exception {
        BoxId id = paused();
        resumeOnUse();
        ExecutionSpec spec = code("wait gate\nprint done");
        ExecutionSpec confirmed =
                new ExecutionSpec(spec.id(), spec.contextId(), spec.code(), spec.timeout(), spec.env(), false, true);
        try (NodeStream<NodeEvent> events = patient.execute(id, confirmed)) {
            events.awaitAccepted();
            assertThat(resumes).hasValue(1);
            fake.open("gate");
            assertThat(text(all(events), StandardStream.STDOUT)).isEqualTo("done\n");
        }
    }

    @Test
    void followers_wait_while_a_box_is_paused_and_find_their_place_when_the_engine_was_restarted_meanwhile()
            throws Exception {
        BoxId id = box(sandbox);
        ExecutionSpec spec = code("print a\nwait gate\nprint b");
        EventFollower events = new EventFollower(
                "execution",
                patient,
                0,
                seq -> seq == 0 ? patient.execute(id, spec) : patient.attach(id, spec.id(), seq));
        assertThat(events.next().orElseThrow().seq()).isEqualTo(1);
        assertThat(events.next().orElseThrow().seq()).isEqualTo(2);
        OutputFollower output = new OutputFollower(
                patient,
                0,
                offset -> patient.readOutput(id, spec.id(), StandardStream.STDOUT, offset, true),
                UnaryOperator.identity());
        assertThat(output.next().orElseThrow().offset()).isZero();
        pause(id);
        fake.open("gate");
        CompletableFuture<List<NodeEvent>> rest = later(() -> rest(events));
        CompletableFuture<Optional<OutputReader.Piece>> piece = later(output::next);
        fake.goAway();
        fake.comeBack();
        assertThat(node.box(id).orElseThrow().state()).isEqualTo(BoxState.PAUSED);
        assertThat(rest).isNotDone();
        assertThat(piece).isNotDone();
        assertThat(patient.resumeBox(id, Optional.empty(), assignment(sandbox)).state())
                .isEqualTo(BoxState.READY);
        assertThat(rest.get(30, TimeUnit.SECONDS)).extracting(NodeEvent::seq).containsExactly(3L, 4L);
        assertThat(piece.get(30, TimeUnit.SECONDS).orElseThrow().offset()).isEqualTo(2);
        output.close();
    }

    private static List<NodeEvent> rest(EventFollower follower) throws InterruptedException {
        List<NodeEvent> rest = new ArrayList<>();
        while (rest.isEmpty() || !(rest.getLast() instanceof NodeEvent.Finished)) {
            rest.add(follower.next().orElseThrow());
        }
        return rest;
    }

    @Test
    void a_pause_whose_answer_is_lost_is_asked_for_until_it_comes() {
        BoxId id = box(sandbox);
        fake.failOnce(FakeCall.PAUSE_BOX, FakeCall.Step.AFTER, FakeNode.unavailable());
        pause(id);
        fake.failOnce(FakeCall.RESUME_BOX, FakeCall.Step.AFTER, FakeNode.unavailable());
        assertThat(patient.resumeBox(id, Optional.empty(), assignment(sandbox)).state())
                .isEqualTo(BoxState.READY);
    }
}
