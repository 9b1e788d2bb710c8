package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.execution.OutputReader;
import atoll.core.node.NodeProcess;
import atoll.core.node.ProcessSpec;
import atoll.core.process.OutputChoice;
import atoll.core.process.ProcessEnd;
import atoll.core.process.ProcessFeed;
import atoll.core.process.ProcessQuery;
import atoll.core.process.ProcessRecord;
import atoll.core.process.ProcessRef;
import atoll.core.process.ProcessResult;
import atoll.core.process.ProcessUpdate;
import atoll.core.process.Processes;
import atoll.core.process.Program;
import atoll.core.process.SignalTarget;
import atoll.core.process.Signals;
import atoll.core.process.StartProcess;
import atoll.core.process.TerminalSize;
import atoll.core.process.Written;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.template.LimitChanges;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
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
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class ProcessTest {
    private static final Duration LONG = Duration.ofSeconds(60);

    private final CoreFixture fixture = new CoreFixture(Map.of(
                    "pool.depth", "1",
                    "node.patience_seconds", "30",
                    "retention.days", "3",
                    "retention.executions", "2"))
            .ready();

    @AfterEach
    void close() {
        fixture.close();
    }

    private Processes processes() {
        return fixture.core().processes();
    }

    private Caller caller() {
        return fixture.caller();
    }

    private SandboxId sandbox() throws InterruptedException {
        return fixture.core()
                .sandboxes()
                .create(
                        caller(),
                        new CreateSandbox(
                                Optional.empty(),
                                Optional.empty(),
                                Map.of(),
                                Map.of(),
                                LimitChanges.NONE,
                                Optional.empty()))
                .id();
    }

    private ProcessRecord start(SandboxId sandbox, String script) {
        return processes().start(caller(), sandbox, StartProcess.command(script));
    }

    private ProcessRecord start(String script) throws InterruptedException {
        return start(sandbox(), script);
    }

    private ProcessRecord end(ProcessRecord process) throws InterruptedException {
        ProcessRecord ended = processes().await(caller(), ProcessRef.of(process.id()), LONG);
        assertThat(ended.running()).isFalse();
        return ended;
    }

    private String read(ProcessRecord process, OutputChoice choice, long offset) throws InterruptedException {
        try (OutputReader reader = processes().read(caller(), ProcessRef.of(process.id()), choice, offset, true)) {
            return rest(reader);
        }
    }

    private static String rest(OutputReader reader) throws InterruptedException {
        StringBuilder text = new StringBuilder();
        Optional<OutputReader.Piece> piece = reader.next();
        while (piece.isPresent()) {
            text.append(StandardCharsets.UTF_8.decode(piece.get().data()));
            piece = reader.next();
        }
        return text.toString();
    }

    private static List<ProcessUpdate> rest(ProcessFeed feed) throws InterruptedException {
        List<ProcessUpdate> updates = new ArrayList<>();
        Optional<ProcessUpdate> update = feed.next();
        while (update.isPresent()) {
            updates.add(update.get());
            update = feed.next();
        }
        return updates;
    }

    private static AtollException fails(ErrorCode code, ThrowingCallable call) {
        AtollException[] caught = new AtollException[1];
        assertThatThrownBy(call).isInstanceOfSatisfying(AtollException.class, e -> {
            assertThat(e.code()).isEqualTo(code);
            caught[0] = e;
        });
        return caught[0];
    }

    private void hasPrinted(long bytes, ProcessRecord process) {
        ProcessRef ref = ProcessRef.of(process.id());
        Eventually.until(
                () -> processes().get(caller(), ref).progress().stdoutBytes() == bytes,
                () -> processes().get(caller(), ref));
    }

    private static ByteBuffer utf8(String text) {
        return StandardCharsets.UTF_8.encode(text);
    }

    @Test
    void a_process_runs_and_its_end_is_on_record() throws Exception {
        ProcessRecord started = start("print a\nwait gate\nerr b\nexit 3");
        assertThat(started.running()).isTrue();
        assertThat(started.pid()).isPositive();
        assertThat(started.argv()).containsExactly("/bin/bash", "-c", "print a\nwait gate\nerr b\nexit 3");
        assertThat(started.command()).contains("print a\nwait gate\nerr b\nexit 3");
        fixture.node.open("gate");
        ProcessEnd end = end(started).end().orElseThrow();
        assertThat(end.reason()).isEqualTo(ProcessEnd.Reason.EXITED);
        assertThat(end.exitCode()).isEqualTo(OptionalInt.of(3));
        assertThat(end.duration()).isEqualTo(Duration.ofMillis(5));
        ProcessRecord recorded = fixture.store.process(started.id()).orElseThrow();
        assertThat(recorded.end()).contains(end);
        assertThat(recorded.progress().stdoutBytes()).isEqualTo(2);
        assertThat(recorded.progress().stderrBytes()).isEqualTo(2);
    }

    @Test
    void a_process_gets_what_it_was_given_and_its_environment_is_on_no_record() throws Exception {
        StartProcess request = StartProcess.of("fake", "env SECRET")
                .in("/srv")
                .as("root")
                .withEnv(Map.of("SECRET", "s3cret"))
                .withTimeout(Duration.ofSeconds(9))
                .withLabels(Map.of("role", "test"));
        ProcessRecord started = processes().start(caller(), sandbox(), request);
        assertThat(read(started, OutputChoice.STDOUT, 0)).isEqualTo("s3cret\n");
        assertThat(started.cwd()).isEqualTo("/srv");
        assertThat(started.user()).isEqualTo("root");
        assertThat(started.timeout()).contains(Duration.ofSeconds(9));
        assertThat(started.labels()).containsEntry("role", "test");
        assertThat(started.command()).isEmpty();
        assertThat(fixture.store.process(started.id()).toString()).doesNotContain("s3cret");
    }

    @Test
    void a_signal_is_told_as_128_and_its_number() throws Exception {
        ProcessRecord started = start("wait never");
        processes().signal(caller(), ProcessRef.of(started.id()), Signals.TERMINATE, SignalTarget.GROUP);
        ProcessEnd end = end(started).end().orElseThrow();
        assertThat(end.reason()).isEqualTo(ProcessEnd.Reason.SIGNALED);
        assertThat(end.signal()).isEqualTo(OptionalInt.of(15));
        assertThat(end.exitCode()).isEqualTo(OptionalInt.of(143));
        // No error for one that has ended.
        processes().signal(caller(), ProcessRef.of(started.id()), Signals.KILL, SignalTarget.TREE);
        assertThat(processes().kill(caller(), ProcessRef.of(started.id())).end())
                .contains(end);
    }

    @Test
    void killing_waits_for_the_end() throws Exception {
        ProcessRecord started = start("wait never");
        ProcessEnd end =
                processes().kill(caller(), ProcessRef.of(started.id())).end().orElseThrow();
        assertThat(end.exitCode()).isEqualTo(OptionalInt.of(137));
    }

    @Test
    void one_that_ran_out_of_memory_says_so_and_the_sandbox_lives() throws Exception {
        SandboxId sandbox = sandbox();
        ProcessRecord started = start(sandbox, "wait never");
        fixture.node.processes().outOfMemory(started.id());
        ProcessEnd end = end(started).end().orElseThrow();
        assertThat(end.reason()).isEqualTo(ProcessEnd.Reason.OUT_OF_MEMORY);
        assertThat(end.detail()).contains("256 MiB");
        assertThat(end(start(sandbox, "exit 0")).end()).isPresent();
    }

    @Test
    void all_that_a_process_says_comes_in_order_and_its_end_last() throws Exception {
        ProcessRecord started = start("print a\nerr b\ndrop 7\nprint c");
        List<ProcessUpdate> updates = rest(processes().attach(caller(), ProcessRef.of(started.id()), 0));
        assertThat(updates.stream().map(ProcessUpdate::seq)).containsExactly(1L, 2L, 3L, 4L, 5L, 6L);
        assertThat(updates.getFirst())
                .isInstanceOfSatisfying(
                        ProcessUpdate.Started.class, s -> assertThat(s.pid()).isEqualTo(started.pid()));
        assertThat(updates.get(3)).isInstanceOf(ProcessUpdate.Gap.class);
        assertThat(updates.getLast())
                .isInstanceOfSatisfying(
                        ProcessUpdate.Ended.class,
                        e -> assertThat(e.process().end()).isPresent());
        // Whoever was told the end finds it on record.
        assertThat(processes().get(caller(), ProcessRef.of(started.id())).running())
                .isFalse();
    }

    @Test
    void a_reader_goes_on_where_it_was_also_at_the_very_end() throws Exception {
        ProcessRecord started = start("print a\nprint b");
        end(started);
        assertThat(rest(processes().attach(caller(), ProcessRef.of(started.id()), 2)))
                .hasSize(2);
        List<ProcessUpdate> last = rest(processes().attach(caller(), ProcessRef.of(started.id()), 4));
        assertThat(last).singleElement().isInstanceOf(ProcessUpdate.Ended.class);
    }

    @Test
    void several_read_at_their_own_pace_and_closing_ends_nothing() throws Exception {
        ProcessRecord started = start("print a\nwait one\nprint b\nwait two\nprint c");
        ProcessRef ref = ProcessRef.of(started.id());
        ProcessFeed slow = processes().attach(caller(), ref, 0);
        ProcessFeed fast = processes().attach(caller(), ref, 0);
        ProcessFeed gone = processes().attach(caller(), ref, 0);
        assertThat(gone.next()).isPresent();
        gone.close();
        assertThat(gone.next()).isEmpty();
        fixture.node.open("one");
        fixture.node.open("two");
        assertThat(rest(fast)).hasSize(5);
        assertThat(rest(slow)).hasSize(5);
        assertThat(end(started).end().orElseThrow().exitCode()).isEqualTo(OptionalInt.of(0));
    }

    @Test
    void closing_wakes_a_reader_that_waits() throws Exception {
        ProcessRecord started = start("wait never");
        ProcessFeed feed = processes().attach(caller(), ProcessRef.of(started.id()), 1);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<Optional<ProcessUpdate>> waiting = threads.submit(feed::next);
            feed.close();
            assertThat(waiting.get()).isEmpty();
        }
        assertThat(processes().get(caller(), ProcessRef.of(started.id())).running())
                .isTrue();
    }

    @Test
    void output_is_read_apart_or_combined_from_any_offset() throws Exception {
        ProcessRecord started = start("print hello\nerr no\nprint world");
        assertThat(read(started, OutputChoice.STDOUT, 3)).isEqualTo("lo\nworld\n");
        assertThat(read(started, OutputChoice.STDERR, 0)).isEqualTo("no\n");
        assertThat(read(started, OutputChoice.COMBINED, 0)).isEqualTo("hello\nno\nworld\n");
    }

    @Test
    void readers_notice_nothing_of_an_engine_restart_and_miss_no_byte() throws Exception {
        ProcessRecord started = start("print a\nwait one\nprint b\nwait two\nprint c");
        ProcessRef ref = ProcessRef.of(started.id());
        ProcessFeed feed = processes().attach(caller(), ref, 0);
        OutputReader reader = processes().read(caller(), ref, OutputChoice.COMBINED, 0, true);
        assertThat(feed.next()).isPresent();
        assertThat(reader.next().orElseThrow().offset()).isZero();
        fixture.node.goAway();
        fixture.node.open("one");
        Thread back = Thread.ofVirtual().start(() -> {
            Eventually.until(() -> !fixture.core().status().nodeConnected(), fixture.core()::status);
            fixture.node.comeBack();
            fixture.node.open("two");
        });
        assertThat(rest(reader)).isEqualTo("b\nc\n");
        assertThat(rest(feed)).hasSize(4);
        back.join();
        assertThat(end(started).end()).isPresent();
    }

    @Test
    void what_was_printed_comes_as_text_with_the_end() throws Exception {
        ProcessRecord started = start("print a\nerr b\nexit 2");
        ProcessResult result = processes().collect(caller(), ProcessRef.of(started.id()), LONG);
        assertThat(result.process().end().orElseThrow().exitCode()).isEqualTo(OptionalInt.of(2));
        assertThat(result.printed().stdout().text()).isEqualTo("a\n");
        assertThat(result.printed().stderr().text()).isEqualTo("b\n");
        assertThat(result.printed().output().text()).isEqualTo("a\nb");
        assertThat(result.printed().truncated()).isFalse();
    }

    @Test
    void a_wait_ends_with_its_time_and_the_process_goes_on() throws Exception {
        ProcessRecord started = start("print a\nwait gate\nprint b");
        ProcessRef ref = ProcessRef.of(started.id());
        ProcessRecord now = processes().await(caller(), ref, Duration.ofMillis(30));
        assertThat(now.running()).isTrue();
        hasPrinted(2, started);
        ProcessResult soFar = processes().collect(caller(), ref, Duration.ofMillis(500));
        assertThat(soFar.process().running()).isTrue();
        assertThat(soFar.printed().stdout().text()).isEqualTo("a\n");
        fixture.node.open("gate");
        assertThat(processes().collect(caller(), ref, LONG).printed().stdout().text())
                .isEqualTo("a\nb\n");
    }

    @Test
    void thousands_wait_with_one_call_to_the_node() throws Exception {
        ProcessRecord started = start("wait gate");
        Eventually.until(() -> fixture.node.processes().asked() > 0, fixture.node.processes()::asked);
        int before = fixture.node.processes().asked();
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Callable<ProcessRecord>> waits = new ArrayList<>();
            for (int i = 0; i < 1_000; i++) {
                waits.add(() -> end(started));
            }
            Thread opener = Thread.ofVirtual().start(() -> fixture.node.open("gate"));
            for (Future<ProcessRecord> wait : threads.invokeAll(waits)) {
                assertThat(wait.get().end()).isPresent();
            }
            opener.join();
        }
        assertThat(fixture.node.processes().asked()).isEqualTo(before);
    }

    @Test
    void input_is_written_in_order_and_closed() throws Exception {
        ProcessRecord started = processes()
                .start(
                        caller(),
                        sandbox(),
                        StartProcess.command("cat\nprint end").withStdin());
        ProcessRef ref = ProcessRef.of(started.id());
        assertThat(processes().write(caller(), ref, OptionalLong.empty(), utf8("hello "), false, LONG))
                .isEqualTo(new Written(6, false, true));
        // A repeated write changes nothing, a hole is refused.
        assertThat(processes().write(caller(), ref, OptionalLong.of(0), utf8("hello "), false, LONG))
                .isEqualTo(new Written(6, false, true));
        fails(ErrorCode.CONFLICT, () -> processes().write(caller(), ref, OptionalLong.of(99), utf8("x"), false, LONG));
        assertThat(processes().write(caller(), ref, OptionalLong.of(6), utf8("world\n"), true, LONG))
                .isEqualTo(new Written(12, true, true));
        assertThat(read(started, OutputChoice.STDOUT, 0)).isEqualTo("hello world\nend\n");
        AtollException ended = fails(
                ErrorCode.CONFLICT,
                () -> processes().write(caller(), ref, OptionalLong.empty(), utf8("x"), false, LONG));
        assertThat(ended.message()).contains("has ended");
    }

    @Test
    void megabytes_of_input_pass_a_small_pipe() throws Exception {
        ProcessRecord started = processes()
                .start(caller(), sandbox(), StartProcess.command("cat").withStdin());
        String sent = "0123456789abcdef".repeat(1 << 16);
        Written written =
                processes().write(caller(), ProcessRef.of(started.id()), OptionalLong.empty(), utf8(sent), true, LONG);
        assertThat(written).isEqualTo(new Written(sent.length(), true, true));
        assertThat(read(started, OutputChoice.STDOUT, 0)).isEqualTo(sent);
    }

    @Test
    void a_program_that_does_not_read_stalls_only_its_writer() throws Exception {
        ProcessRecord started = processes()
                .start(caller(), sandbox(), StartProcess.command("deaf").withStdin());
        Written written = processes()
                .write(
                        caller(),
                        ProcessRef.of(started.id()),
                        OptionalLong.empty(),
                        ByteBuffer.allocate(1 << 20),
                        false,
                        Duration.ofMillis(200));
        assertThat(written.complete()).isFalse();
        assertThat(written.offset()).isPositive().isLessThan(1 << 20);
        assertThat(processes().kill(caller(), ProcessRef.of(started.id())).end())
                .isPresent();
    }

    @Test
    void one_without_input_cannot_be_written_to() throws Exception {
        ProcessRecord started = start("wait never");
        AtollException e = fails(
                ErrorCode.CONFLICT,
                () -> processes()
                        .write(caller(), ProcessRef.of(started.id()), OptionalLong.empty(), utf8("x"), false, LONG));
        assertThat(e.message()).contains("no input");
    }

    @Test
    void a_terminal_is_resized_and_always_has_an_input() throws Exception {
        ProcessRecord started = processes()
                .start(caller(), sandbox(), StartProcess.of(new Program.Shell()).onTerminal(new TerminalSize(80, 24)));
        ProcessRef ref = ProcessRef.of(started.id());
        assertThat(started.stdin()).isTrue();
        ProcessRecord other = start("wait never");
        fails(ErrorCode.CONFLICT, () -> processes().resize(caller(), ProcessRef.of(other.id()), TerminalSize.DEFAULT));
        ProcessRecord terminal = processes()
                .start(
                        caller(),
                        started.sandboxId(),
                        StartProcess.command("wait never").onTerminal(new TerminalSize(80, 24)));
        processes().resize(caller(), ProcessRef.of(terminal.id()), new TerminalSize(132, 50));
        assertThat(processes().get(caller(), ProcessRef.of(terminal.id())).terminal())
                .contains(new TerminalSize(132, 50));
        assertThat(processes().get(caller(), ref).id()).isEqualTo(started.id());
    }

    @Test
    void a_running_process_is_found_by_its_pid() throws Exception {
        SandboxId sandbox = sandbox();
        ProcessRecord started = start(sandbox, "wait never");
        ProcessRef byPid = ProcessRef.parse(sandbox, Integer.toString(started.pid()));
        assertThat(processes().get(caller(), byPid).id()).isEqualTo(started.id());
        assertThat(processes()
                        .get(caller(), ProcessRef.parse(sandbox, started.id().toString()))
                        .id())
                .isEqualTo(started.id());
        SandboxId other = sandbox();
        fails(ErrorCode.PROCESS_NOT_FOUND, () -> processes().get(caller(), ProcessRef.of(other, started.pid())));
        fails(ErrorCode.PROCESS_NOT_FOUND, () -> processes().get(caller(), ProcessRef.of(other, started.id())));
        assertThat(processes().kill(caller(), byPid).end()).isPresent();
        fails(ErrorCode.PROCESS_NOT_FOUND, () -> processes().get(caller(), byPid));
        fails(ErrorCode.PROCESS_NOT_FOUND, () -> processes().get(caller(), ProcessRef.parse(sandbox, "proc-1")));
    }

    @Test
    void another_project_sees_nothing_of_it() throws Exception {
        ProcessRecord started = start("wait never");
        Caller other = new Caller(ProjectId.random(), KeyId.random(), Set.of(Scope.values()));
        ProcessRef ref = ProcessRef.of(started.id());
        List<ThrowingCallable> calls = List.of(
                () -> processes().get(other, ref),
                () -> processes().attach(other, ref, 0),
                () -> processes().read(other, ref, OutputChoice.STDOUT, 0, false),
                () -> processes().await(other, ref, LONG),
                () -> processes().collect(other, ref, LONG),
                () -> processes().signal(other, ref, 9, SignalTarget.TREE),
                () -> processes().kill(other, ref),
                () -> processes().write(other, ref, OptionalLong.empty(), utf8("x"), false, LONG),
                () -> processes().resize(other, ref, TerminalSize.DEFAULT),
                () -> processes().get(other, ProcessRef.of(started.sandboxId(), started.pid())));
        for (ThrowingCallable call : calls) {
            fails(ErrorCode.PROCESS_NOT_FOUND, call);
        }
        assertThat(processes().list(other, ProcessQuery.ALL).items()).isEmpty();
        fails(ErrorCode.SANDBOX_NOT_FOUND, () -> processes().list(other, ProcessQuery.in(started.sandboxId())));
        fails(
                ErrorCode.SANDBOX_NOT_FOUND,
                () -> processes().start(other, started.sandboxId(), StartProcess.command("print")));
        fails(ErrorCode.SANDBOX_NOT_FOUND, () -> processes().guestProcesses(other, started.sandboxId()));
        assertThat(processes().get(caller(), ref).running()).isTrue();
    }

    @Test
    void a_key_that_may_only_read_starts_and_ends_nothing() throws Exception {
        ProcessRecord started = start("wait never");
        Caller reader = new Caller(ProjectId.DEFAULT, KeyId.random(), Set.of(Scope.READ));
        ProcessRef ref = ProcessRef.of(started.id());
        assertThat(processes().get(reader, ref).running()).isTrue();
        fails(ErrorCode.FORBIDDEN, () -> processes().start(reader, started.sandboxId(), StartProcess.command("print")));
        fails(ErrorCode.FORBIDDEN, () -> processes().kill(reader, ref));
        fails(ErrorCode.FORBIDDEN, () -> processes().write(reader, ref, OptionalLong.empty(), utf8(""), true, LONG));
    }

    @Test
    void processes_are_listed_with_what_they_did_so_far() throws Exception {
        SandboxId sandbox = sandbox();
        ProcessRecord ended = end(start(sandbox, "print one"));
        fixture.clock.advance(Duration.ofSeconds(1));
        ProcessRecord running = processes()
                .start(
                        caller(),
                        sandbox,
                        StartProcess.command("print two\nwait never").withLabels(Map.of("role", "x")));
        Eventually.until(
                () -> processes()
                                .list(caller(), ProcessQuery.in(sandbox))
                                .items()
                                .getFirst()
                                .progress()
                                .stdoutBytes()
                        == 4,
                () -> processes().list(caller(), ProcessQuery.in(sandbox)));
        assertThat(processes().list(caller(), ProcessQuery.in(sandbox)).items())
                .extracting(ProcessRecord::id)
                .containsExactly(running.id(), ended.id());
        ProcessQuery labelled =
                new ProcessQuery(Optional.of(sandbox), Optional.of(true), Map.of("role", "x"), PageRequest.FIRST);
        assertThat(processes().list(caller(), labelled).items())
                .extracting(ProcessRecord::id)
                .containsExactly(running.id());
    }

    @Test
    void every_process_inside_is_shown_and_can_be_signaled() throws Exception {
        SandboxId sandbox = sandbox();
        ProcessRecord started = start(sandbox, "wait never");
        assertThat(processes().guestProcesses(caller(), sandbox))
                .singleElement()
                .satisfies(guest -> assertThat(guest.processId()).contains(started.id()));
        processes().signalGuest(caller(), sandbox, started.pid(), Signals.KILL);
        assertThat(end(started).end().orElseThrow().exitCode()).isEqualTo(OptionalInt.of(137));
        fails(ErrorCode.PROCESS_NOT_FOUND, () -> processes().signalGuest(caller(), sandbox, 4711, Signals.KILL));
        fails(ErrorCode.INVALID_REQUEST, () -> processes().signalGuest(caller(), sandbox, started.pid(), 99));
    }

    @Test
    void what_cannot_be_started_says_why_and_is_on_no_record() throws Exception {
        SandboxId sandbox = sandbox();
        AtollException missing = fails(
                ErrorCode.PROGRAM_NOT_FOUND, () -> processes().start(caller(), sandbox, StartProcess.of("missing")));
        assertThat(missing.message()).contains("missing");
        fails(ErrorCode.PERMISSION_DENIED, () -> processes().start(caller(), sandbox, StartProcess.of("forbidden")));
        fails(
                ErrorCode.INVALID_REQUEST,
                () -> processes().start(caller(), sandbox, StartProcess.of("x").as("nobody-knows")));
        assertThat(processes().list(caller(), ProcessQuery.in(sandbox)).items()).isEmpty();
        fails(ErrorCode.INVALID_REQUEST, () -> StartProcess.of(""));
        fails(ErrorCode.INVALID_REQUEST, () -> StartProcess.command(" "));
        fails(ErrorCode.INVALID_REQUEST, () -> StartProcess.of("a\0b"));
        fails(ErrorCode.REQUEST_TOO_LARGE, () -> StartProcess.of("x", "y".repeat(1 << 20)));
    }

    @Test
    void an_image_without_bash_runs_commands_by_sh() throws Exception {
        fixture.node.processes().withoutBash();
        ProcessRecord started = start("print a");
        assertThat(started.argv()).containsExactly("/bin/sh", "-c", "print a");
        assertThat(read(started, OutputChoice.STDOUT, 0)).isEqualTo("a\n");
    }

    @Test
    void the_same_key_gives_the_same_process() throws Exception {
        SandboxId sandbox = sandbox();
        StartProcess request = StartProcess.command("print once").withIdempotencyKey("k");
        ProcessRecord first = processes().start(caller(), sandbox, request);
        assertThat(processes().start(caller(), sandbox, request).id()).isEqualTo(first.id());
        end(first);
        fixture.restart();
        assertThat(processes().start(caller(), sandbox, request).id()).isEqualTo(first.id());
        assertThat(fixture.node.processes().started()).isEqualTo(1);
        fails(
                ErrorCode.CONFLICT,
                () -> processes()
                        .start(
                                caller(),
                                sandbox,
                                StartProcess.command("print twice").withIdempotencyKey("k")));
    }

    @Test
    void processes_outlive_the_server_and_are_followed_again() throws Exception {
        SandboxId sandbox = sandbox();
        ProcessRecord started = processes()
                .start(
                        caller(),
                        sandbox,
                        StartProcess.command("print a\ncat\nprint end").withStdin());
        assertThat(processes()
                        .write(caller(), ProcessRef.of(started.id()), OptionalLong.empty(), utf8("x\n"), false, LONG)
                        .offset())
                .isEqualTo(2);
        fixture.restart();
        ProcessRef byPid = ProcessRef.of(sandbox, started.pid());
        assertThat(processes().get(caller(), byPid).id()).isEqualTo(started.id());
        // The input goes on where it was.
        assertThat(processes().write(caller(), byPid, OptionalLong.empty(), utf8("y\n"), true, LONG))
                .isEqualTo(new Written(4, true, true));
        assertThat(end(started).end().orElseThrow().exitCode()).isEqualTo(OptionalInt.of(0));
        assertThat(read(started, OutputChoice.STDOUT, 0)).isEqualTo("a\nx\ny\nend\n");
    }

    @Test
    void one_that_ended_without_the_server_is_recorded_and_its_output_stays() throws Exception {
        ProcessRecord started = start("print a\nwait gate\nexit 4");
        fixture.core().close();
        fixture.node.open("gate");
        Eventually.until(() -> fixture.node.processes().unacknowledged() == 1, () -> "not ended");
        fixture.restart();
        assertThat(end(started).end().orElseThrow().exitCode()).isEqualTo(OptionalInt.of(4));
        Eventually.until(() -> fixture.node.processes().unacknowledged() == 0, () -> "not acknowledged");
        assertThat(read(started, OutputChoice.STDOUT, 0)).isEqualTo("a\n");
        ProcessResult replay = processes().collect(caller(), ProcessRef.of(started.id()), LONG);
        assertThat(replay.printed().stdout().text()).isEqualTo("a\n");
    }

    @Test
    void one_whose_record_was_lost_with_the_server_is_found_on_the_node() throws Exception {
        SandboxId sandbox = sandbox();
        BoxId box = fixture.core().sandboxes().get(caller(), sandbox).box();
        fixture.core().close();
        ProcessId id = ProcessId.random();
        NodeProcess there = fixture.node
                .processes()
                .start(
                        box,
                        new ProcessSpec(
                                id,
                                List.of("/bin/bash", "-c", "exit 5"),
                                "",
                                Map.of(),
                                "",
                                false,
                                Optional.empty(),
                                Optional.empty(),
                                Map.of("role", "lost")));
        assertThat(there.pid()).isPositive();
        fixture.restart();
        ProcessRecord found = processes().await(caller(), ProcessRef.of(id), LONG);
        assertThat(found.end().orElseThrow().exitCode()).isEqualTo(OptionalInt.of(5));
        assertThat(found.labels()).containsEntry("role", "lost");
    }

    @Test
    void one_that_nobody_knows_any_more_is_lost() throws Exception {
        SandboxId sandbox = sandbox();
        ProcessRecord started = start(sandbox, "print a\nwait never");
        fixture.node.processes().lose(started.id());
        ProcessEnd end = end(started).end().orElseThrow();
        assertThat(end.reason()).isEqualTo(ProcessEnd.Reason.LOST);
        assertThat(end.exitCode()).isEmpty();
        fails(ErrorCode.OUTPUT_EXPIRED, () -> read(started, OutputChoice.STDOUT, 0));
        ProcessRecord second = start(sandbox, "wait never");
        fixture.core().close();
        fixture.node.processes().lose(second.id());
        fixture.restart();
        assertThat(end(second).end().orElseThrow().reason()).isEqualTo(ProcessEnd.Reason.LOST);
        assertThat(fixture.core().sandboxes().get(caller(), sandbox).state()).isEqualTo(SandboxState.RUNNING);
    }

    @Test
    void one_whose_sandbox_ended_says_so_and_its_output_stays() throws Exception {
        SandboxId sandbox = sandbox();
        ProcessRecord started = start(sandbox, "print a\nwait never");
        hasPrinted(2, started);
        assertThat(fixture.core().sandboxes().delete(caller(), sandbox).state()).isEqualTo(SandboxState.ENDED);
        assertThat(end(started).end().orElseThrow().reason()).isEqualTo(ProcessEnd.Reason.SANDBOX_ENDED);
        assertThat(read(started, OutputChoice.STDOUT, 0)).isEqualTo("a\n");
        fails(ErrorCode.SANDBOX_ENDED, () -> start(sandbox, "print"));
        fails(ErrorCode.SANDBOX_ENDED, () -> processes().guestProcesses(caller(), sandbox));
    }

    @Test
    void a_machine_that_was_restarted_ends_all_with_their_sandboxes() throws Exception {
        SandboxId sandbox = sandbox();
        ProcessRecord started = start(sandbox, "wait never");
        fixture.core().close();
        fixture.node.loseEverything();
        fixture.restart();
        ProcessEnd end = end(started).end().orElseThrow();
        assertThat(end.reason()).isEqualTo(ProcessEnd.Reason.SANDBOX_ENDED);
        assertThat(end.detail()).contains("machine was restarted");
    }

    @Test
    void a_start_during_an_engine_restart_happens_once() throws Exception {
        SandboxId sandbox = sandbox();
        fixture.node.goAway();
        Thread back = Thread.ofVirtual().start(() -> {
            Eventually.until(() -> !fixture.core().status().nodeConnected(), fixture.core()::status);
            fixture.node.comeBack();
        });
        ProcessRecord started = start(sandbox, "print a");
        back.join();
        assertThat(end(started).end().orElseThrow().exitCode()).isEqualTo(OptionalInt.of(0));
        assertThat(fixture.node.processes().started()).isEqualTo(1);
        fixture.restart();
        assertThat(end(started).end().orElseThrow().reason()).isEqualTo(ProcessEnd.Reason.EXITED);
    }

    @Test
    void a_server_that_was_replaced_tells_those_who_start_something() throws Exception {
        SandboxId sandbox = sandbox();
        fixture.node.claimForAnother();
        AtollException e = fails(ErrorCode.NODE_UNAVAILABLE, () -> start(sandbox, "print"));
        assertThat(e.message()).contains("replaced");
    }

    @Test
    void retention_removes_processes_with_their_output() throws Exception {
        SandboxId sandbox = sandbox();
        ProcessRecord old = end(start(sandbox, "print a"));
        ProcessRecord running = start(sandbox, "wait never");
        fixture.clock.advance(Duration.ofDays(4));
        ProcessRecord young = end(start(sandbox, "print b"));
        Eventually.until(() -> fixture.node.processes().unacknowledged() == 0, () -> "not acknowledged");
        fixture.core().sweep();
        fails(ErrorCode.PROCESS_NOT_FOUND, () -> processes().get(caller(), ProcessRef.of(old.id())));
        assertThat(fixture.node.processes().remembers(old.id())).isFalse();
        assertThat(processes().get(caller(), ProcessRef.of(running.id())).running())
                .isTrue();
        assertThat(read(young, OutputChoice.STDOUT, 0)).isEqualTo("b\n");
    }

    @Test
    void a_hundred_sandboxes_and_processes_at_once_stay_apart() throws Exception {
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Callable<String>> calls = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                String mine = "value" + i;
                calls.add(() -> {
                    ProcessRecord started = start("print " + mine);
                    return processes()
                            .collect(caller(), ProcessRef.of(started.id()), LONG)
                            .printed()
                            .output()
                            .text();
                });
            }
            List<Future<String>> results = threads.invokeAll(calls);
            for (int i = 0; i < results.size(); i++) {
                assertThat(results.get(i).get()).isEqualTo("value" + i);
            }
        }
        Eventually.until(() -> fixture.node.processes().unacknowledged() == 0, () -> "not acknowledged");
        assertThat(fixture.core().status().runningProcesses()).isZero();
    }

    @Test
    void a_sandbox_with_its_box_gone_is_told_to_who_starts_there() throws Exception {
        SandboxId id = sandbox();
        Sandbox sandbox = fixture.core().sandboxes().get(caller(), id);
        fixture.node.end(sandbox.box(), EndReason.OUT_OF_MEMORY, "peak 255 MiB");
        AtollException e = fails(ErrorCode.SANDBOX_ENDED, () -> start(id, "print"));
        assertThat(e.message()).contains("out_of_memory");
    }
}
