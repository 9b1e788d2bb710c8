package atoll.core.testing;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.ProcessId;
import atoll.core.SandboxId;
import atoll.core.execution.ExitReason;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.file.ArchiveFormat;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReader;
import atoll.core.file.FileReply;
import atoll.core.file.FileStat;
import atoll.core.file.FileType;
import atoll.core.file.FileWriter;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;
import atoll.core.file.WrittenFile;
import atoll.core.node.Box;
import atoll.core.node.BoxAssignment;
import atoll.core.node.BoxSpec;
import atoll.core.node.BoxState;
import atoll.core.node.BoxUsage;
import atoll.core.node.ContextSpec;
import atoll.core.node.ExecutionSpec;
import atoll.core.node.Node;
import atoll.core.node.NodeContext;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeProcess;
import atoll.core.node.NodeProcesses;
import atoll.core.node.NodeStream;
import atoll.core.node.ProcessSpec;
import atoll.core.port.ListeningPort;
import atoll.core.port.Tunnel;
import atoll.core.process.InputPosition;
import atoll.core.process.OutputChoice;
import atoll.core.process.SignalTarget;
import atoll.core.process.Signals;
import atoll.core.process.TerminalSize;
import atoll.core.sandbox.EndReason;
import atoll.core.template.Limits;
import java.io.ByteArrayOutputStream;
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
import org.junit.jupiter.api.Test;

/** What core relies on in every {@link Node}. Those who implement it run this over a {@link FakeNode}, in memory or across a wire. */
public abstract class NodeContract extends NodeFixture {
    @Test
    void a_node_says_what_it_is() {
        assertThat(node.info().instance()).isEqualTo("fake");
        assertThat(node.info().memoryTotalBytes()).isEqualTo(8L << 30);
        assertThat(node.info().claimedEpoch()).isEqualTo(1);
    }

    @Test
    void images_come_with_their_languages_and_packages() {
        assertThat(node.images().get(1).name()).isEqualTo("python");
        assertThat(node.images().get(1).languages()).containsExactly(Language.PYTHON, Language.BASH);
        assertThat(node.images().get(1).packages()).containsEntry("debian", Map.of("python3", "3.11"));
    }

    @Test
    void a_box_keeps_its_labels_and_warm_contexts() {
        BoxId id = box();
        Box seen = node.box(id).orElseThrow();
        assertThat(seen.labels()).containsEntry("atoll.pool", "python@1");
        assertThat(seen.warmContexts()).containsExactly(ContextSpec.of(context, Language.PYTHON));
        assertThat(node.boxes()).containsExactly(seen);
    }

    @Test
    void creating_a_box_twice_gives_the_first() {
        BoxId id = box();
        BoxSpec spec = new BoxSpec("a".repeat(64), Limits.DEFAULT, List.of(), Map.of());
        assertThat(node.createBox(id, spec).warmContexts()).hasSize(1);
        assertThat(fake.started()).isEqualTo(1);
    }

    @Test
    void a_box_is_assigned_once() {
        BoxId id = box();
        SandboxId sandbox = SandboxId.random();
        BoxAssignment mine = new BoxAssignment(sandbox, "host", Map.of(), Limits.DEFAULT);
        assertThat(node.assignBox(id, mine).sandboxId()).contains(sandbox);
        assertThat(node.assignBox(id, mine).sandboxId()).contains(sandbox);
        BoxAssignment other = new BoxAssignment(SandboxId.random(), "host", Map.of(), Limits.DEFAULT);
        assertFails(ErrorCode.CONFLICT, () -> node.assignBox(id, other));
    }

    @Test
    void the_limits_of_a_box_can_be_changed_but_for_its_disk() {
        BoxId id = box();
        Limits d = Limits.DEFAULT;
        Limits more = new Limits(2 * d.memoryBytes(), 0, 2 * d.diskBytes(), 99, d.maxOpenFiles());
        Limits expected = new Limits(2 * d.memoryBytes(), 0, d.diskBytes(), 99, d.maxOpenFiles());
        assertThat(node.updateLimits(id, more).limits()).contains(expected);
        assertThat(node.box(id).orElseThrow().limits()).contains(expected);
        fake.useMemory(d.memoryBytes());
        Limits less = new Limits(d.memoryBytes() / 2, 0, d.diskBytes(), 99, d.maxOpenFiles());
        assertFails(ErrorCode.CONFLICT, () -> node.updateLimits(id, less));
        assertThat(node.box(id).orElseThrow().limits()).contains(expected);
        assertFails(ErrorCode.NOT_FOUND, () -> node.updateLimits(BoxId.random(), more));
    }

    @Test
    void deleting_a_box_that_is_not_there_is_no_error() {
        BoxId id = box();
        node.deleteBox(id);
        node.deleteBox(id);
        assertThat(node.box(id)).isEmpty();
    }

    @Test
    void an_unknown_box_is_not_found() {
        BoxAssignment assignment = new BoxAssignment(SandboxId.random(), "h", Map.of(), Limits.DEFAULT);
        assertFails(ErrorCode.NOT_FOUND, () -> node.assignBox(BoxId.random(), assignment));
    }

    @Test
    void a_watch_tells_every_box_first_and_then_each_change() throws Exception {
        BoxId id = box();
        try (NodeStream<Box> watch = node.watchBoxes()) {
            assertThat(watch.next().orElseThrow().id()).isEqualTo(id);
            fake.end(id, EndReason.OUT_OF_MEMORY, "too much");
            Box ended = watch.next().orElseThrow();
            assertThat(ended.state()).isEqualTo(BoxState.ENDED);
            assertThat(ended.end().orElseThrow().reason()).isEqualTo(EndReason.OUT_OF_MEMORY);
            assertThat(ended.end().orElseThrow().detail()).contains("too much");
        }
    }

    @Test
    void an_execution_says_everything_in_order_and_its_end_last() throws Exception {
        BoxId id = box();
        List<NodeEvent> events = all(node.execute(id, code("print one\nerr two\nprint three\nshow 4")));
        assertThat(events.stream().map(NodeEvent::seq)).containsExactly(1L, 2L, 3L, 4L, 5L, 6L);
        assertThat(text(events, StandardStream.STDOUT)).isEqualTo("one\nthree\n");
        assertThat(text(events, StandardStream.STDERR)).isEqualTo("two\n");
        assertThat(((NodeEvent.Output) events.get(3)).offset()).isEqualTo(4);
        assertThat(((NodeEvent.Result) events.get(4)).result().data().plainText())
                .contains("4");
        assertThat(((NodeEvent.Result) events.get(4)).result().data().json()).isEqualTo("{\"text/plain\":\"4\"}");
        assertThat(finish(events).reason()).isEqualTo(ExitReason.COMPLETED);
        assertThat(finish(events).stdoutBytes()).isEqualTo(10);
        assertThat(finish(events).duration()).isEqualTo(Duration.ofMillis(5));
    }

    @Test
    void state_lives_on_in_a_context() throws Exception {
        BoxId id = box();
        assertThat(all(node.execute(id, code("set x 7")))).isNotEmpty();
        assertThat(text(all(node.execute(id, code("get x\nenv X"))), StandardStream.STDOUT))
                .isEqualTo("7\n1\n");
    }

    @Test
    void an_error_comes_with_its_traceback() throws Exception {
        NodeEvent.Finish finish = finish(all(node.execute(box(), code("raise ValueError no good"))));
        assertThat(finish.reason()).isEqualTo(ExitReason.ERROR);
        assertThat(finish.error().orElseThrow().name()).isEqualTo("ValueError");
        assertThat(finish.error().orElseThrow().traceback()).endsWith("ValueError: no good");
        assertThat(finish.stateKept()).isTrue();
    }

    @Test
    void an_exit_comes_with_its_code() throws Exception {
        NodeEvent.Finish finish = finish(all(node.execute(box(), code("exit 3"))));
        assertThat(finish.reason()).isEqualTo(ExitReason.EXITED);
        assertThat(finish.exitCode()).isEqualTo(OptionalInt.of(3));
    }

    @Test
    void the_same_execution_runs_once() throws Exception {
        BoxId id = box();
        ExecutionSpec spec = code("print once");
        List<NodeEvent> first = all(node.execute(id, spec));
        assertThat(all(node.execute(id, spec))).hasSameSizeAs(first);
    }

    @Test
    void attaching_goes_on_after_the_event_named() throws Exception {
        BoxId id = box();
        ExecutionSpec spec = code("print a\nprint b\nwait gate\nprint c");
        NodeStream<NodeEvent> first = node.execute(id, spec);
        assertThat(first.next().orElseThrow().seq()).isEqualTo(1);
        first.close();
        NodeStream<NodeEvent> second = node.attach(id, spec.id(), 2);
        fake.open("gate");
        assertThat(text(all(second), StandardStream.STDOUT)).isEqualTo("b\nc\n");
    }

    @Test
    void attaching_to_an_unknown_execution_is_not_found() {
        BoxId id = box();
        assertFails(ErrorCode.NOT_FOUND, () -> all(node.attach(id, ExecutionId.random(), 0)));
    }

    @Test
    void code_in_an_unknown_context_is_not_found() {
        BoxId id = box();
        ExecutionSpec spec =
                new ExecutionSpec(ExecutionId.random(), ContextId.random(), "print", Duration.ofSeconds(1), Map.of());
        assertFails(ErrorCode.NOT_FOUND, () -> all(node.execute(id, spec)));
        node.openContext(id, ContextSpec.of(spec.contextId(), Language.BASH));
    }

    @Test
    void closing_a_stream_leaves_the_execution_running() throws Exception {
        BoxId id = box();
        ExecutionSpec spec = code("wait gate\nprint done");
        NodeStream<NodeEvent> stream = node.execute(id, spec);
        assertThat(stream.next()).isPresent();
        stream.close();
        assertThat(node.executions()).hasSize(1);
        fake.open("gate");
        assertThat(text(all(node.attach(id, spec.id(), 0)), StandardStream.STDOUT))
                .isEqualTo("done\n");
    }

    @Test
    void an_interrupted_execution_ends() throws Exception {
        BoxId id = box();
        ExecutionSpec spec = code("wait never");
        NodeStream<NodeEvent> stream = node.execute(id, spec);
        assertThat(stream.next()).isPresent();
        node.interrupt(id, spec.id());
        assertThat(finish(all(stream)).reason()).isEqualTo(ExitReason.INTERRUPTED);
    }

    @Test
    void executions_are_held_until_they_are_forgotten() throws Exception {
        BoxId id = box();
        ExecutionSpec spec = code("print x");
        assertThat(all(node.execute(id, spec))).isNotEmpty();
        assertThat(node.executions()).hasSize(1);
        assertThat(node.executions().getFirst().running()).isFalse();
        node.forgetExecutions(List.of(spec.id()), true);
        assertThat(node.executions()).isEmpty();
        assertThat(all(node.attach(id, spec.id(), 0))).isNotEmpty();
        node.forgetExecutions(List.of(spec.id()), false);
        assertFails(ErrorCode.NOT_FOUND, () -> all(node.attach(id, spec.id(), 0)));
    }

    @Test
    void output_is_read_from_an_offset() throws Exception {
        BoxId id = box();
        ExecutionSpec spec = code("print hello\nerr no\nprint world");
        assertThat(all(node.execute(id, spec))).isNotEmpty();
        StringBuilder text = new StringBuilder();
        try (OutputReader reader = node.readOutput(id, spec.id(), StandardStream.STDOUT, 3, true)) {
            Optional<OutputReader.Piece> piece = reader.next();
            while (piece.isPresent()) {
                text.append(StandardCharsets.UTF_8.decode(piece.get().data()));
                piece = reader.next();
            }
        }
        assertThat(text).hasToString("lo\nworld\n");
    }

    @Test
    void an_older_server_is_refused() {
        BoxId id = box();
        Node newer = node(fake);
        newer.claim(2);
        assertFails(ErrorCode.CONFLICT, () -> node(fake).claim(1));
        newer.deleteBox(id);
    }

    @Test
    void while_the_node_is_away_every_call_says_so() throws Exception {
        BoxId id = box();
        NodeStream<NodeEvent> stream = node.execute(id, code("wait never"));
        assertThat(stream.next()).isPresent();
        fake.goAway();
        assertFails(ErrorCode.NODE_UNAVAILABLE, stream::next);
        assertFails(ErrorCode.NODE_UNAVAILABLE, node::boxes);
        fake.comeBack();
        assertThat(node.boxes()).hasSize(1);
    }

    // Files.

    private static WriteFile to(String path, WriteFile.Mode mode, long offset) {
        return new WriteFile(
                path, mode, offset, OptionalInt.empty(), true, Optional.empty(), Map.of(), OptionalLong.empty());
    }

    private WrittenFile write(BoxId id, WriteFile what, byte[] content) throws InterruptedException {
        try (FileWriter writer = node.writeFile(id, "", what)) {
            for (int at = 0; at < content.length; at += FileWriter.LARGEST_PIECE) {
                int size = Math.min(FileWriter.LARGEST_PIECE, content.length - at);
                writer.write(ByteBuffer.wrap(content, at, size).slice());
            }
            return writer.commit();
        }
    }

    private WrittenFile write(BoxId id, String path, String content) throws InterruptedException {
        return write(id, to(path, WriteFile.Mode.REPLACE, 0), content.getBytes(StandardCharsets.UTF_8));
    }

    private byte[] read(BoxId id, ReadFile what) throws InterruptedException {
        var all = new ByteArrayOutputStream();
        try (FileReader reader = node.readFile(id, "", what)) {
            Optional<ByteBuffer> piece = reader.next();
            while (piece.isPresent()) {
                byte[] bytes = new byte[piece.get().remaining()];
                piece.get().get(bytes);
                all.writeBytes(bytes);
                piece = reader.next();
            }
        }
        return all.toByteArray();
    }

    private String read(BoxId id, String path) throws InterruptedException {
        return new String(read(id, ReadFile.whole(path)), StandardCharsets.UTF_8);
    }

    @Test
    void a_file_of_any_bytes_comes_back_as_it_was() throws Exception {
        BoxId id = box();
        byte[] content = new byte[3_000_001];
        for (int i = 0; i < content.length; i++) {
            content[i] = (byte) (i * 31 + (i >> 8));
        }
        WrittenFile written = write(id, to("a/b/all.bin", WriteFile.Mode.REPLACE, 0), content);
        assertThat(written.bytes()).isEqualTo(content.length);
        assertThat(written.created()).isTrue();
        assertThat(written.file().path()).isEqualTo("/home/user/a/b/all.bin");
        assertThat(read(id, ReadFile.whole("~/a/b/all.bin"))).isEqualTo(content);
        assertThat(read(id, new ReadFile("a/b/all.bin", 1_000_000, 10, Optional.empty())))
                .isEqualTo(Arrays.copyOfRange(content, 1_000_000, 1_000_010));
    }

    @Test
    void a_file_is_appended_to_and_written_in_the_middle() throws Exception {
        BoxId id = box();
        assertThat(write(id, "f", "hello").created()).isTrue();
        assertThat(write(id, to("f", WriteFile.Mode.APPEND, 0), "world".getBytes(StandardCharsets.UTF_8))
                        .created())
                .isFalse();
        assertThat(write(id, to("f", WriteFile.Mode.AT_OFFSET, 5), " W".getBytes(StandardCharsets.UTF_8))
                        .file()
                        .size())
                .isEqualTo(10);
        assertThat(read(id, "f")).isEqualTo("hello Wrld");
    }

    @Test
    void an_empty_file_is_written_and_read() throws Exception {
        BoxId id = box();
        assertThat(write(id, "empty", "").file().size()).isZero();
        assertThat(read(id, "empty")).isEmpty();
    }

    @Test
    void a_write_that_is_broken_off_leaves_the_old_content() throws Exception {
        BoxId id = box();
        write(id, "f", "old");
        FileWriter writer = node.writeFile(id, "", to("f", WriteFile.Mode.REPLACE, 0));
        writer.write(ByteBuffer.wrap("new".getBytes(StandardCharsets.UTF_8)));
        writer.close();
        assertThat(read(id, "f")).isEqualTo("old");
    }

    @Test
    void failures_inside_say_what_kind_they_are_and_name_the_path() throws Exception {
        BoxId id = box();
        write(id, "file", "x");
        node.file(id, "", new FileOperation.MakeFolder("full/inner", true, OptionalInt.empty(), false));
        assertFails(ErrorCode.FILE_NOT_FOUND, () -> read(id, "none"));
        assertFails(ErrorCode.FILE_CONFLICT, () -> read(id, "full"));
        assertFails(
                ErrorCode.FILE_EXISTS,
                () -> write(id, to("file", WriteFile.Mode.CREATE, 0), "y".getBytes(StandardCharsets.UTF_8)));
        assertFails(ErrorCode.PERMISSION_DENIED, () -> read(id, "/root/secret"));
        assertFails(ErrorCode.FILE_CONFLICT, () -> node.file(id, "", new FileOperation.Remove("full", false, false)));
        assertFails(ErrorCode.INVALID_REQUEST, () -> node.file(id, "nobody", new FileOperation.Stat("x", true, false)));
        fake.filesOf(id).makeFifo("/home/user/fifo");
        assertFails(ErrorCode.FILE_CONFLICT, () -> read(id, "fifo"));
        fake.filesOf(id).limitDisk(2);
        assertFails(ErrorCode.DISK_FULL, () -> write(id, "large", "0123456789"));
        assertThatThrownBy(() -> read(id, "none")).hasMessageContaining("/home/user/none");
    }

    @Test
    void folders_are_listed_page_by_page_with_everything_about_each_entry() throws Exception {
        BoxId id = box();
        write(id, "d/b", "12");
        write(id, "d/sub/c", "3");
        write(id, "d/.hidden", "4");
        node.file(id, "", new FileOperation.MakeSymlink("d/link", "b"));
        FileReply first = node.file(id, "", new FileOperation.ListFolder("d", 2, false, 3, ""));
        assertThat(first.entries()).extracting(FileStat::name).containsExactly("b", "link", "sub");
        assertThat(first.entries().get(0).size()).isEqualTo(2);
        assertThat(first.entries().get(0).mode()).isEqualTo(0644);
        assertThat(first.entries().get(0).owner()).isEqualTo("user");
        assertThat(first.entries().get(1).type()).isEqualTo(FileType.SYMLINK);
        assertThat(first.entries().get(1).linkTarget()).contains("b");
        assertThat(first.entries().get(1).targetType()).contains(FileType.FILE);
        assertThat(first.entries().get(2).linkTarget()).isEmpty();
        FileReply rest = node.file(
                id,
                "",
                new FileOperation.ListFolder("d", 2, false, 3, first.next().orElseThrow()));
        assertThat(rest.entries()).extracting(FileStat::path).containsExactly("/home/user/d/sub/c");
        assertThat(rest.next()).isEmpty();
    }

    @Test
    void files_are_moved_copied_changed_and_removed() throws Exception {
        BoxId id = box();
        write(id, "a", "x");
        node.file(id, "", new FileOperation.Copy("a", "new/b", false, false, true));
        FileReply moved = node.file(id, "", new FileOperation.Move("a", "new/c", false, false));
        assertThat(moved.file().orElseThrow().path()).isEqualTo("/home/user/new/c");
        assertFails(
                ErrorCode.FILE_EXISTS, () -> node.file(id, "", new FileOperation.Move("new/b", "new/c", false, false)));
        Instant time = Instant.parse("2020-02-03T04:05:06.000000007Z");
        FileStat changed = node.file(
                        id,
                        "root",
                        new FileOperation.Change(
                                "/home/user/new/c",
                                OptionalInt.of(01640),
                                Optional.of("root"),
                                Optional.empty(),
                                false,
                                Optional.of(time)))
                .file()
                .orElseThrow();
        assertThat(changed.mode()).isEqualTo(01640);
        assertThat(changed.owner()).isEqualTo("root");
        assertThat(changed.modifiedAt()).isEqualTo(time);
        assertThat(node.file(id, "", new FileOperation.Remove("new", true, false))
                        .changed())
                .isTrue();
        assertThat(node.file(id, "", new FileOperation.Remove("new", true, true))
                        .changed())
                .isFalse();
    }

    @Test
    void names_and_contents_are_found_and_replaced() throws Exception {
        BoxId id = box();
        write(id, "src/a.py", "one\nTwo two\n");
        write(id, "src/b.txt", "two");
        FileReply named =
                node.file(id, "", new FileOperation.Find("src", "*.py", "", false, false, false, Optional.empty(), 10));
        assertThat(named.entries()).extracting(FileStat::name).containsExactly("a.py");
        FileReply found = node.file(
                id, "", new FileOperation.Find("src", "", "TWO", false, true, false, Optional.of(FileType.FILE), 10));
        assertThat(found.matches())
                .containsExactly(
                        new FileReply.Match("/home/user/src/a.py", 2, "Two two", 0, 3),
                        new FileReply.Match("/home/user/src/b.txt", 1, "two", 0, 3));
        FileReply replaced =
                node.file(id, "", new FileOperation.Replace(List.of("src/a.py", "none"), "t(w)o", "$1", true));
        assertThat(replaced.replaced().get(0))
                .isEqualTo(new FileReply.Replaced("/home/user/src/a.py", 1, Optional.empty()));
        assertThat(replaced.replaced().get(1).error()).isPresent();
        assertThat(read(id, "src/a.py")).isEqualTo("one\nTwo w\n");
    }

    @Test
    void a_folder_goes_out_and_in_as_an_archive() throws Exception {
        BoxId id = box();
        write(id, "out/x/y", "content");
        byte[] tar = read(id, new ReadFile("out", 0, 0, Optional.of(ArchiveFormat.TAR)));
        WriteFile unpack = new WriteFile(
                "in",
                WriteFile.Mode.REPLACE,
                0,
                OptionalInt.empty(),
                true,
                Optional.of(ArchiveFormat.TAR),
                Map.of(),
                OptionalLong.empty());
        assertThat(write(id, unpack, tar).files()).isEqualTo(2);
        assertThat(read(id, "in/x/y")).isEqualTo("content");
    }

    @Test
    void a_watch_is_ready_first_and_then_tells_what_changes() throws Exception {
        BoxId id = box();
        try (NodeStream<FileEvent> watch = node.watchFiles(id, "", "/home/user", true)) {
            assertThat(watch.next().orElseThrow().kind()).isEqualTo(FileEvent.Kind.READY);
            write(id, "sub/f", "x");
            assertThat(watch.next().orElseThrow().name()).isEqualTo("sub");
            FileEvent created = watch.next().orElseThrow();
            assertThat(created.kind()).isEqualTo(FileEvent.Kind.CREATE);
            assertThat(created.path()).isEqualTo("/home/user/sub/f");
            assertThat(created.fileType()).contains(FileType.FILE);
            assertThat(watch.next().orElseThrow().kind()).isEqualTo(FileEvent.Kind.WRITE);
        }
        Eventually.until(
                () -> fake.filesOf(id).watchers() == 0, () -> fake.filesOf(id).watchers());
        assertFails(
                ErrorCode.FILE_NOT_FOUND,
                () -> node.watchFiles(id, "", "/none", true).next());
    }

    @Test
    void files_of_a_box_that_has_ended_are_out_of_reach() {
        BoxId id = box();
        fake.end(id, EndReason.CRASHED, "gone");
        assertFails(ErrorCode.FILE_CONFLICT, () -> node.file(id, "", new FileOperation.Stat("x", true, false)));
        assertFails(ErrorCode.FILE_CONFLICT, () -> read(id, "x"));
        assertFails(ErrorCode.FILE_CONFLICT, () -> write(id, "x", "y"));
        assertFails(ErrorCode.CONFLICT, () -> node.ports(id));
    }

    @Test
    void transfers_fail_when_the_node_goes_away() throws Exception {
        BoxId id = box();
        write(id, to("f", WriteFile.Mode.REPLACE, 0), new byte[8 << 20]);
        FileReader reader = node.readFile(id, "", ReadFile.whole("f"));
        assertThat(reader.next()).isPresent();
        FileWriter writer = node.writeFile(id, "", to("g", WriteFile.Mode.REPLACE, 0));
        fake.goAway();
        assertFails(ErrorCode.NODE_UNAVAILABLE, () -> {
            while (reader.next().isPresent()) {
                // To the end, or where it breaks.
            }
        });
        assertFails(ErrorCode.NODE_UNAVAILABLE, () -> {
            writer.write(ByteBuffer.wrap(new byte[10]));
            writer.commit();
        });
        reader.close();
        writer.close();
        fake.comeBack();
        assertFails(ErrorCode.FILE_NOT_FOUND, () -> read(id, "g"));
    }

    // Ports.

    @Test
    void listening_ports_are_told() {
        BoxId id = box();
        assertThat(node.ports(id)).isEmpty();
        fake.portsOf(id).listen(8080, "127.0.0.1");
        assertThat(node.ports(id)).containsExactly(new ListeningPort(8080, "127.0.0.1", 7, "echo", Optional.empty()));
    }

    @Test
    void a_tunnel_carries_bytes_both_ways_and_keeps_half_close() throws Exception {
        BoxId id = box();
        fake.portsOf(id).listen(8080, "127.0.0.1");
        try (Tunnel tunnel = node.tunnel(id, 8080)) {
            for (String text : List.of("one", "two")) {
                tunnel.send(ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)));
                assertThat(StandardCharsets.UTF_8
                                .decode(tunnel.receive().orElseThrow())
                                .toString())
                        .isEqualTo(text);
            }
            tunnel.send(ByteBuffer.wrap(new byte[] {'x'}));
            tunnel.end();
            assertThat(tunnel.receive()).isPresent();
            assertThat(tunnel.receive()).isEmpty();
        }
        Eventually.until(
                () -> fake.portsOf(id).open() == 0, () -> fake.portsOf(id).open());
    }

    @Test
    void a_tunnel_to_a_port_where_nothing_listens_is_refused() {
        BoxId id = box();
        assertFails(ErrorCode.PORT_CLOSED, () -> node.tunnel(id, 8081));
    }

    private static ProcessSpec program(String script) {
        return program(script, true, Optional.empty());
    }

    private static ProcessSpec program(String script, boolean stdin, Optional<TerminalSize> terminal) {
        return new ProcessSpec(
                ProcessId.random(),
                List.of("/bin/bash", "-c", script),
                "/tmp",
                Map.of("X", "1"),
                "user",
                stdin,
                Optional.of(Duration.ofSeconds(90)),
                terminal,
                Map.of("role", "test"));
    }

    private NodeProcess end(BoxId box, ProcessSpec spec) throws Exception {
        return node.processes().ended(box, spec.id()).get(30, TimeUnit.SECONDS);
    }

    private String read(BoxId box, ProcessSpec spec, OutputChoice choice, long offset) throws InterruptedException {
        StringBuilder text = new StringBuilder();
        try (OutputReader reader = node.processes().read(box, spec.id(), choice, offset, true)) {
            Optional<OutputReader.Piece> piece = reader.next();
            while (piece.isPresent()) {
                text.append(StandardCharsets.UTF_8.decode(piece.get().data()));
                piece = reader.next();
            }
        }
        return text.toString();
    }

    @Test
    void a_process_is_started_once_with_what_it_was_given_and_tells_its_end() throws Exception {
        BoxId id = box();
        ProcessSpec spec = program("env X\nprint a\nerr b\nexit 3", false, Optional.of(new TerminalSize(100, 30)));
        NodeProcess started = node.processes().start(id, spec);
        assertThat(started.pid()).isPositive();
        assertThat(started.spec().argv()).isEqualTo(spec.argv());
        assertThat(started.spec().labels()).isEqualTo(spec.labels());
        assertThat(started.spec().terminal()).contains(new TerminalSize(100, 30));
        assertThat(started.spec().timeout()).contains(Duration.ofSeconds(90));
        assertThat(started.spec().user()).isEqualTo("user");
        NodeProcess ended = end(id, spec);
        assertThat(ended.finish().orElseThrow().exitCode()).isEqualTo(OptionalInt.of(3));
        assertThat(ended.finish().orElseThrow().signal()).isEmpty();
        assertThat(node.processes().start(id, spec).pid()).isEqualTo(started.pid());
        assertThat(fake.processes().started()).isEqualTo(1);
        assertThat(ended.stdoutBytes()).isEqualTo(6);
        assertThat(ended.stderrBytes()).isZero();
    }

    @Test
    void what_a_process_says_is_numbered_and_its_end_comes_last() throws Exception {
        BoxId id = box();
        ProcessSpec spec = program("print a\nerr b\ndrop 5\nprint c");
        assertThat(node.processes().start(id, spec).id()).isEqualTo(spec.id());
        List<NodeEvent> events = all(node.processes().attach(id, spec.id(), 0));
        assertThat(events.stream().map(NodeEvent::seq)).containsExactly(1L, 2L, 3L, 4L, 5L, 6L);
        assertThat(text(events, StandardStream.STDOUT)).isEqualTo("a\nc\n");
        assertThat(text(events, StandardStream.STDERR)).isEqualTo("b\n");
        assertThat(((NodeEvent.Gap) events.get(3)).bytes()).isEqualTo(5);
        assertThat(((NodeEvent.Output) events.get(4)).offset()).isEqualTo(7);
        assertThat(all(node.processes().attach(id, spec.id(), 4))).hasSize(2);
        assertThat(all(node.processes().attach(id, spec.id(), 6))).isEmpty();
    }

    @Test
    void output_of_a_process_is_read_apart_or_combined_from_any_offset() throws Exception {
        BoxId id = box();
        ProcessSpec spec = program("print hello\nerr no\nprint world");
        assertThat(node.processes().start(id, spec).id()).isEqualTo(spec.id());
        assertThat(read(id, spec, OutputChoice.STDOUT, 3)).isEqualTo("lo\nworld\n");
        assertThat(read(id, spec, OutputChoice.STDERR, 0)).isEqualTo("no\n");
        assertThat(read(id, spec, OutputChoice.COMBINED, 0)).isEqualTo("hello\nno\nworld\n");
        assertThat(read(id, spec, OutputChoice.COMBINED, 7)).isEqualTo("o\nworld\n");
    }

    @Test
    void input_goes_in_by_offset_and_ends_when_it_is_closed() throws Exception {
        BoxId id = box();
        ProcessSpec spec = program("cat\nprint end");
        NodeProcesses processes = node.processes();
        assertThat(processes.start(id, spec).stdinOffset()).isZero();
        Duration limit = Duration.ofSeconds(30);
        InputPosition first = processes.write(id, spec.id(), OptionalLong.of(0), utf8("hello "), false, limit);
        assertThat(first).isEqualTo(new InputPosition(6, false));
        assertThat(processes.write(id, spec.id(), OptionalLong.of(3), utf8("lo world"), false, limit))
                .isEqualTo(new InputPosition(11, false));
        assertFails(
                ErrorCode.CONFLICT, () -> processes.write(id, spec.id(), OptionalLong.of(99), utf8("x"), false, limit));
        assertThat(processes.write(id, spec.id(), OptionalLong.empty(), utf8("!\n"), true, limit))
                .isEqualTo(new InputPosition(13, true));
        assertThat(end(id, spec).stdinClosed()).isTrue();
        assertThat(read(id, spec, OutputChoice.STDOUT, 0)).isEqualTo("hello world!\nend\n");
        assertFails(
                ErrorCode.CONFLICT, () -> processes.write(id, spec.id(), OptionalLong.of(13), utf8("x"), false, limit));
    }

    @Test
    void a_program_that_does_not_read_takes_what_fits_and_no_more() {
        BoxId id = box();
        ProcessSpec spec = program("deaf");
        assertThat(node.processes().start(id, spec).id()).isEqualTo(spec.id());
        ByteBuffer large = ByteBuffer.allocate(NodeProcesses.LARGEST_WRITE);
        InputPosition position =
                node.processes().write(id, spec.id(), OptionalLong.of(0), large, true, Duration.ofMillis(300));
        assertThat(position.closed()).isFalse();
        assertThat(position.offset()).isPositive().isLessThan(NodeProcesses.LARGEST_WRITE);
    }

    private static ByteBuffer utf8(String text) {
        return StandardCharsets.UTF_8.encode(text);
    }

    @Test
    void a_signal_ends_a_process_and_is_told() throws Exception {
        BoxId id = box();
        ProcessSpec spec = program("print a\nwait never");
        NodeProcess started = node.processes().start(id, spec);
        assertThat(node.processes().guests(id)).singleElement().satisfies(guest -> {
            assertThat(guest.pid()).isEqualTo(started.pid());
            assertThat(guest.processId()).contains(spec.id());
            assertThat(guest.cpu()).isEqualTo(Duration.ofMillis(12));
        });
        node.processes().signal(id, spec.id(), Signals.TERMINATE, SignalTarget.GROUP);
        assertThat(end(id, spec).finish().orElseThrow().signal()).isEqualTo(OptionalInt.of(15));
        ProcessSpec other = program("wait never");
        node.processes().signalGuest(id, node.processes().start(id, other).pid(), Signals.KILL);
        assertThat(end(id, other).finish().orElseThrow().signal()).isEqualTo(OptionalInt.of(9));
        assertFails(ErrorCode.NOT_FOUND, () -> node.processes().signalGuest(id, 4711, Signals.KILL));
    }

    @Test
    void a_terminal_gets_another_size() {
        BoxId id = box();
        ProcessSpec spec = program("wait never", true, Optional.of(new TerminalSize(80, 24)));
        assertThat(node.processes().start(id, spec).id()).isEqualTo(spec.id());
        node.processes().resize(id, spec.id(), new TerminalSize(120, 40));
        assertThat(node.processes().get(id, spec.id()).spec().terminal()).contains(new TerminalSize(120, 40));
    }

    @Test
    void what_cannot_be_started_says_why_and_leaves_nothing() {
        BoxId id = box();
        ProcessSpec d = program("print");
        ProcessSpec missing = with(d, List.of("missing"), "");
        assertFails(ErrorCode.PROGRAM_NOT_FOUND, () -> node.processes().start(id, missing));
        assertFails(ErrorCode.PERMISSION_DENIED, () -> node.processes().start(id, with(d, List.of("forbidden"), "")));
        assertFails(ErrorCode.INVALID_REQUEST, () -> node.processes().start(id, with(d, d.argv(), "nobody-knows")));
        assertFails(ErrorCode.PROGRAM_NOT_FOUND, () -> node.processes().start(BoxId.random(), d));
        assertFails(ErrorCode.NOT_FOUND, () -> node.processes().get(id, missing.id()));
        assertThat(node.processes().list(Optional.empty())).isEmpty();
    }

    private static ProcessSpec with(ProcessSpec spec, List<String> argv, String user) {
        return new ProcessSpec(
                ProcessId.random(),
                argv,
                spec.cwd(),
                spec.env(),
                user,
                spec.stdin(),
                spec.timeout(),
                spec.terminal(),
                spec.labels());
    }

    @Test
    void processes_are_held_until_they_are_forgotten() throws Exception {
        BoxId id = box();
        ProcessSpec spec = program("print x");
        assertThat(node.processes().start(id, spec).id()).isEqualTo(spec.id());
        assertThat(end(id, spec).finish()).isPresent();
        assertThat(node.processes().list(Optional.of(id))).singleElement().satisfies(held -> {
            assertThat(held.box()).isEqualTo(id);
            assertThat(held.process().finish()).isPresent();
        });
        assertThat(node.processes().list(Optional.of(BoxId.random()))).isEmpty();
        node.processes().forget(List.of(spec.id()), true);
        assertThat(node.processes().list(Optional.empty())).isEmpty();
        assertThat(read(id, spec, OutputChoice.STDOUT, 0)).isEqualTo("x\n");
        node.processes().forget(List.of(spec.id()), false);
        assertFails(ErrorCode.NOT_FOUND, () -> read(id, spec, OutputChoice.STDOUT, 0));
    }

    @Test
    void whoever_waits_for_a_process_is_told_when_the_node_goes_away() {
        BoxId id = box();
        ProcessSpec spec = program("wait never");
        assertThat(node.processes().start(id, spec).id()).isEqualTo(spec.id());
        CompletableFuture<NodeProcess> end = node.processes().ended(id, spec.id());
        Eventually.until(() -> fake.processes().asked() == 1, fake.processes()::asked);
        fake.goAway();
        assertThatThrownBy(() -> end.get(30, TimeUnit.SECONDS))
                .cause()
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.NODE_UNAVAILABLE));
        fake.comeBack();
        assertThatThrownBy(() -> node.processes().ended(id, ProcessId.random()).get(30, TimeUnit.SECONDS))
                .cause()
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.NOT_FOUND));
    }

    @Test
    void a_context_is_restarted_and_closed() throws Exception {
        BoxId id = box();
        ContextSpec spec = new ContextSpec(ContextId.random(), Language.BASH, "/srv", Map.of("A", "b"));
        NodeContext opened = node.openContext(id, spec);
        assertThat(opened).isEqualTo(new NodeContext(spec.id(), "1.0", "/srv", NodeContext.State.IDLE, 0, ""));
        assertThat(node.contexts(id)).hasSize(2).contains(opened);
        assertThat(node.restartContext(id, spec.id()).restarts()).isEqualTo(1);
        node.closeContext(id, spec.id());
        node.closeContext(id, spec.id());
        assertThat(node.contexts(id)).hasSize(1);
        assertFails(ErrorCode.NOT_FOUND, () -> node.restartContext(id, spec.id()));
    }

    @Test
    void a_sample_tells_what_each_box_uses() {
        BoxId id = box();
        SandboxId sandbox = SandboxId.random();
        assertThat(node.assignBox(id, new BoxAssignment(sandbox, "h", Map.of(), Limits.DEFAULT))
                        .sandboxId())
                .contains(sandbox);
        Instant at = Instant.parse("2026-01-02T03:04:05.678Z");
        fake.use(at, Duration.ofMillis(1234));
        assertThat(node.sampleUsage())
                .containsExactly(new BoxUsage(
                        id,
                        Optional.of(sandbox),
                        at,
                        Duration.ofMillis(1234),
                        Duration.ofMillis(3),
                        50L << 20,
                        60L << 20,
                        7L << 20,
                        1,
                        Optional.of(Limits.DEFAULT)));
    }
}
