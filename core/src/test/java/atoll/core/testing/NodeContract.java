package atoll.core.testing;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.SandboxId;
import atoll.core.execution.ExitReason;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.node.Box;
import atoll.core.node.BoxAssignment;
import atoll.core.node.BoxSpec;
import atoll.core.node.BoxState;
import atoll.core.node.ContextSpec;
import atoll.core.node.ExecutionSpec;
import atoll.core.node.Node;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeStream;
import atoll.core.sandbox.EndReason;
import atoll.core.template.Limits;
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

/** What core relies on in every {@link Node}. Those who implement it run this over a {@link FakeNode}, in memory or across a wire. */
public abstract class NodeContract {
    protected final FakeNode fake = new FakeNode();
    private Node node = fake;

    /** The node under test; what it does happens in {@code fake}. */
    protected abstract Node node(FakeNode behind);

    @BeforeEach
    void claimed() {
        node = node(fake);
        node.claim(1);
    }

    @AfterEach
    void closed() {
        node.close();
    }

    private final ContextId context = ContextId.random();

    private BoxId box() {
        BoxId id = BoxId.random();
        BoxSpec spec = new BoxSpec(
                node.images().get(1).digest(),
                Limits.DEFAULT,
                List.of(ContextSpec.of(context, Language.PYTHON)),
                Map.of("atoll.pool", "python@1"));
        assertThat(node.createBox(id, spec).state()).isEqualTo(BoxState.READY);
        return id;
    }

    private ExecutionSpec code(String code) {
        return new ExecutionSpec(ExecutionId.random(), context, code, Duration.ofSeconds(30), Map.of("X", "1"));
    }

    private static List<NodeEvent> all(NodeStream<NodeEvent> stream) throws InterruptedException {
        List<NodeEvent> events = new ArrayList<>();
        try (stream) {
            Optional<NodeEvent> event = stream.next();
            while (event.isPresent()) {
                events.add(event.get());
                event = stream.next();
            }
        }
        return events;
    }

    private static String text(List<NodeEvent> events, StandardStream stream) {
        StringBuilder text = new StringBuilder();
        for (NodeEvent event : events) {
            if (event instanceof NodeEvent.Output output && output.stream() == stream) {
                text.append(StandardCharsets.UTF_8.decode(output.data().duplicate()));
            }
        }
        return text.toString();
    }

    private static NodeEvent.Finish finish(List<NodeEvent> events) {
        return ((NodeEvent.Finished) events.getLast()).finish();
    }

    private static void assertFails(ErrorCode code, ThrowingCallable call) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

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
}
