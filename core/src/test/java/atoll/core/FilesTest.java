package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.file.BatchStep;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReader;
import atoll.core.file.FileWatch;
import atoll.core.file.FileWriter;
import atoll.core.file.Files;
import atoll.core.file.ReadFile;
import atoll.core.file.WatchId;
import atoll.core.file.WatchPage;
import atoll.core.file.WriteFile;
import atoll.core.port.Tunnel;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.Sandbox;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import atoll.core.testing.FakeFiles;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class FilesTest {
    private static final Duration LONG = Duration.ofSeconds(30);

    private final CoreFixture fixture = new CoreFixture();
    private Files files;
    private Caller caller;
    private Sandbox sandbox;

    @BeforeEach
    void start() throws Exception {
        fixture.ready();
        files = fixture.core().files();
        caller = fixture.caller();
        sandbox = fixture.core()
                .sandboxes()
                .create(
                        caller,
                        new CreateSandbox(
                                Optional.empty(),
                                Optional.empty(),
                                Map.of(),
                                Map.of(),
                                atoll.core.template.LimitChanges.NONE,
                                Optional.empty()));
    }

    @AfterEach
    void stop() {
        fixture.close();
    }

    private FakeFiles inside() {
        return fixture.node.filesOf(sandbox.box());
    }

    private static ByteBuffer bytes(String text) {
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    private void write(String path, String content) throws InterruptedException {
        try (FileWriter writer = files.write(caller, sandbox.id(), "", WriteFile.replacing(path))) {
            writer.write(bytes(content));
            assertThat(writer.commit().bytes()).isEqualTo(content.length());
        }
    }

    private String read(String path) throws InterruptedException {
        var text = new StringBuilder();
        try (FileReader reader = files.read(caller, sandbox.id(), "", ReadFile.whole(path))) {
            Optional<ByteBuffer> piece = reader.next();
            while (piece.isPresent()) {
                text.append(StandardCharsets.UTF_8.decode(piece.get()));
                piece = reader.next();
            }
        }
        return text.toString();
    }

    private static void assertFails(ErrorCode code, ThrowingCallable call) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    @Test
    void what_is_written_is_read() throws Exception {
        write("a", "content");
        assertThat(read("~/a")).isEqualTo("content");
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "a\u0000b"})
    void a_path_with_nul_or_none_is_refused(String path) {
        assertFails(ErrorCode.INVALID_REQUEST, () -> read(path));
        assertFails(ErrorCode.INVALID_REQUEST, () -> write(path, "x"));
        assertFails(
                ErrorCode.INVALID_REQUEST,
                () -> files.apply(caller, sandbox.id(), "", new FileOperation.Move("a", path, true, true)));
        assertFails(ErrorCode.INVALID_REQUEST, () -> files.watch(caller, sandbox.id(), "", path, true));
    }

    @Test
    void a_path_of_more_than_4096_bytes_is_refused_and_a_newline_is_a_name() throws Exception {
        assertFails(ErrorCode.INVALID_REQUEST, () -> read("é".repeat(2049)));
        write("new\nline and \\ and \"", "x");
        assertThat(read("new\nline and \\ and \"")).isEqualTo("x");
    }

    @Test
    void a_path_is_never_resolved_here() throws Exception {
        write("../../tmp/passwd", "inside");
        assertThat(read("/tmp/passwd")).isEqualTo("inside");
    }

    @Test
    void a_failure_inside_keeps_its_kind_while_the_sandbox_lives() {
        assertFails(ErrorCode.FILE_NOT_FOUND, () -> read("none"));
        assertFails(ErrorCode.PERMISSION_DENIED, () -> read("/root/x"));
        assertFails(ErrorCode.FILE_CONFLICT, () -> read("/tmp"));
    }

    @Test
    void files_of_an_ended_sandbox_are_told_to_have_ended_with_it() throws Exception {
        write("a", "x");
        FileReader reader = files.read(caller, sandbox.id(), "", ReadFile.whole("a"));
        fixture.node.end(sandbox.box(), EndReason.OUT_OF_MEMORY, "too much memory");
        assertFails(ErrorCode.SANDBOX_ENDED, () -> {
            while (reader.next().isPresent()) {
                // To where it breaks.
            }
        });
        assertThatThrownBy(() -> read("a")).hasMessageContaining("too much memory");
        assertFails(ErrorCode.SANDBOX_ENDED, () -> fixture.core().ports().list(caller, sandbox.id()));
    }

    @Test
    void another_projects_files_are_not_there() {
        Caller other = new Caller(ProjectId.random(), caller.key(), caller.scopes());
        assertFails(
                ErrorCode.SANDBOX_NOT_FOUND, () -> files.read(other, sandbox.id(), "", ReadFile.whole("/etc/passwd")));
        assertFails(ErrorCode.SANDBOX_NOT_FOUND, () -> fixture.core().ports().tunnel(other, sandbox.id(), 80));
    }

    @Test
    void a_key_that_may_only_read_records_gets_no_files() {
        Caller reader = new Caller(caller.project(), caller.key(), java.util.Set.of(Scope.READ));
        assertFails(ErrorCode.FORBIDDEN, () -> files.read(reader, sandbox.id(), "", ReadFile.whole("/etc/passwd")));
    }

    @Test
    void a_call_waits_for_a_node_that_is_being_restarted() throws Exception {
        write("a", "x");
        fixture.node.goAway();
        Thread back = Thread.startVirtualThread(fixture.node::comeBack);
        assertThat(read("a")).isEqualTo("x");
        FileOperation make = new FileOperation.MakeFolder("d", false, OptionalInt.empty(), false);
        assertThat(files.apply(caller, sandbox.id(), "", make).changed()).isTrue();
        back.join();
    }

    @Test
    void a_batch_has_a_result_for_each_step_in_its_order() throws Exception {
        List<BatchStep.Result> results = files.batch(
                caller,
                sandbox.id(),
                "",
                List.of(
                        new BatchStep.Write(WriteFile.replacing("a"), bytes("12345")),
                        new BatchStep.Read("a", 5),
                        new BatchStep.Read("a", 4),
                        new BatchStep.Read("none", 4),
                        new BatchStep.Do(new FileOperation.Remove("a", false, false))),
                false);
        assertThat(results.get(0)).isInstanceOf(BatchStep.Result.Written.class);
        assertThat(((BatchStep.Result.Content) results.get(1)).bytes()).isEqualTo(bytes("12345"));
        assertThat(((BatchStep.Result.Failed) results.get(2)).failure().code()).isEqualTo(ErrorCode.REQUEST_TOO_LARGE);
        assertThat(((BatchStep.Result.Failed) results.get(3)).failure().code()).isEqualTo(ErrorCode.FILE_NOT_FOUND);
        assertThat(results.get(4)).isInstanceOf(BatchStep.Result.Done.class);
    }

    @Test
    void a_batch_that_stops_on_an_error_leaves_the_rest_undone() throws Exception {
        List<BatchStep.Result> results = files.batch(
                caller,
                sandbox.id(),
                "",
                List.of(new BatchStep.Read("none", 4), new BatchStep.Write(WriteFile.replacing("after"), bytes("x"))),
                true);
        assertThat(results.get(1)).isInstanceOf(BatchStep.Result.Skipped.class);
        assertFails(ErrorCode.FILE_NOT_FOUND, () -> read("after"));
    }

    private static List<String> take(FileWatch watch, int count) throws InterruptedException {
        List<String> seen = new ArrayList<>();
        while (seen.size() < count) {
            FileEvent event = watch.next(LONG).orElseThrow();
            seen.add(event.kind().text() + " " + event.name());
        }
        return seen;
    }

    @Test
    void a_watch_tells_what_changes_and_ends_when_it_is_closed() throws Exception {
        try (FileWatch watch = files.watch(caller, sandbox.id(), "", "/home/user", false)) {
            write("a", "x");
            assertThat(take(watch, 3)).containsExactly("ready ", "create a", "write a");
            assertThat(watch.next(Duration.ofMillis(1))).isEmpty();
        }
        Eventually.until(() -> inside().watchers() == 0, () -> inside().watchers());
    }

    @Test
    void a_watch_goes_on_after_the_node_was_away_and_says_that_something_may_be_missing() throws Exception {
        try (FileWatch watch = files.watch(caller, sandbox.id(), "", "/home/user", false)) {
            assertThat(take(watch, 1)).containsExactly("ready ");
            fixture.node.goAway();
            fixture.node.comeBack();
            assertThat(take(watch, 1)).containsExactly("overflow ");
            write("b", "x");
            assertThat(take(watch, 2)).containsExactly("create b", "write b");
        }
    }

    @Test
    void a_reader_that_is_too_slow_learns_that_it_missed_something() throws Exception {
        try (FileWatch watch = files.watch(caller, sandbox.id(), "", "/home/user", false)) {
            for (int i = 0; i < 12_000; i++) {
                inside().tell(FileEvent.Kind.WRITE, "/home/user/f" + i);
            }
            inside().tell(FileEvent.Kind.WRITE, "/home/user/last");
            int seen = 0;
            boolean overflow = false;
            FileEvent event;
            do {
                event = watch.next(LONG).orElseThrow();
                overflow |= event.kind() == FileEvent.Kind.OVERFLOW;
                seen++;
            } while (!event.name().equals("last"));
            assertThat(overflow || seen > 12_000).isTrue();
        }
    }

    @Test
    void a_polled_watch_gives_each_event_once_by_its_cursor() throws Exception {
        WatchId id = files.startWatch(caller, sandbox.id(), "", "/home/user", true);
        assertThat(files.poll(caller, sandbox.id(), id, 0, Duration.ZERO).events())
                .isEmpty();
        write("a", "x");
        List<String> seen = new ArrayList<>();
        long cursor = 0;
        while (seen.size() < 2) {
            WatchPage page = files.poll(caller, sandbox.id(), id, cursor, LONG);
            page.events().forEach(event -> seen.add(event.kind().text() + " " + event.name()));
            assertThat(page.overflow()).isFalse();
            cursor = page.next();
        }
        assertThat(seen).containsExactly("create a", "write a");
        assertThat(files.poll(caller, sandbox.id(), id, cursor, Duration.ofMillis(1))
                        .events())
                .isEmpty();
        assertThat(files.poll(caller, sandbox.id(), id, 0, Duration.ZERO).events())
                .hasSize(2);
        files.endWatch(caller, sandbox.id(), id);
        files.endWatch(caller, sandbox.id(), id);
        assertFails(ErrorCode.NOT_FOUND, () -> files.poll(caller, sandbox.id(), id, 0, Duration.ZERO));
        assertFails(ErrorCode.NOT_FOUND, () -> files.drain(caller, sandbox.id(), id));
        Eventually.until(() -> inside().watchers() == 0, () -> inside().watchers());
    }

    @Test
    void a_drained_watch_gives_each_event_once_without_a_cursor() throws Exception {
        WatchId id = files.startWatch(caller, sandbox.id(), "", "/home/user", true);
        assertThat(files.drain(caller, sandbox.id(), id).events()).isEmpty();
        write("a", "x");
        List<String> seen = new ArrayList<>();
        Eventually.until(() -> drainInto(id, seen).size() >= 2, () -> seen);
        assertThat(seen).containsExactly("create a", "write a");
        assertThat(files.drain(caller, sandbox.id(), id).events()).isEmpty();
        files.endWatch(caller, sandbox.id(), id);
    }

    private List<String> drainInto(WatchId id, List<String> seen) {
        try {
            files.drain(caller, sandbox.id(), id)
                    .events()
                    .forEach(event -> seen.add(event.kind().text() + " " + event.name()));
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
        return seen;
    }

    @Test
    void a_polled_watch_keeps_the_last_ten_thousand_events_and_says_that_others_are_lost() throws Exception {
        WatchId id = files.startWatch(caller, sandbox.id(), "", "/home/user", true);
        for (int i = 0; i <= 10_000; i++) {
            inside().tell(FileEvent.Kind.WRITE, "/home/user/f" + i);
        }
        long last = 10_002;
        Eventually.until(() -> next(id) == last, () -> next(id));
        WatchPage page = files.poll(caller, sandbox.id(), id, 1, LONG);
        assertThat(page.overflow()).isTrue();
        assertThat(page.events()).hasSize(10_000);
        assertThat(files.poll(caller, sandbox.id(), id, 10_000, LONG).overflow())
                .isFalse();
    }

    private long next(WatchId id) {
        try {
            return files.poll(caller, sandbox.id(), id, 0, Duration.ZERO).next();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError(e);
        }
    }

    @Test
    void a_watch_that_nobody_asks_for_is_ended_after_five_minutes() throws Exception {
        WatchId id = files.startWatch(caller, sandbox.id(), "", "/home/user", true);
        fixture.clock.advance(Duration.ofMinutes(4));
        assertThat(files.poll(caller, sandbox.id(), id, 0, Duration.ZERO).events())
                .isEmpty();
        fixture.clock.advance(Duration.ofMinutes(6));
        assertFails(ErrorCode.NOT_FOUND, () -> files.poll(caller, sandbox.id(), id, 0, Duration.ZERO));
        Eventually.until(() -> inside().watchers() == 0, () -> inside().watchers());
    }

    @Test
    void a_sandbox_has_a_bounded_number_of_polled_watches() throws Exception {
        for (int i = 0; i < 64; i++) {
            assertThat(files.startWatch(caller, sandbox.id(), "", "/home/user", true))
                    .isNotNull();
        }
        assertFails(ErrorCode.QUOTA_EXCEEDED, () -> files.startWatch(caller, sandbox.id(), "", "/home/user", true));
    }

    @Test
    void a_watch_of_nothing_fails_at_once() {
        assertFails(ErrorCode.FILE_NOT_FOUND, () -> files.watch(caller, sandbox.id(), "", "none", true));
        assertFails(ErrorCode.FILE_NOT_FOUND, () -> files.startWatch(caller, sandbox.id(), "", "none", true));
    }

    @Test
    void ports_are_listed_and_reached() throws Exception {
        fixture.node.portsOf(sandbox.box()).listen(3000, "127.0.0.1");
        assertThat(fixture.core().ports().list(caller, sandbox.id())).hasSize(1);
        try (Tunnel tunnel = fixture.core().ports().tunnel(caller, sandbox.id(), 3000)) {
            tunnel.send(bytes("hi"));
            assertThat(tunnel.receive()).contains(bytes("hi"));
        }
        assertFails(ErrorCode.PORT_CLOSED, () -> fixture.core().ports().tunnel(caller, sandbox.id(), 3001));
        assertFails(ErrorCode.INVALID_REQUEST, () -> fixture.core().ports().tunnel(caller, sandbox.id(), 65_536));
    }
}
