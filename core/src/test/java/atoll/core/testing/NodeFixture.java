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
import atoll.core.execution.StandardStream;
import atoll.core.node.BoxAssignment;
import atoll.core.node.BoxSpec;
import atoll.core.node.BoxState;
import atoll.core.node.ContextSpec;
import atoll.core.node.ExecutionSpec;
import atoll.core.node.Node;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeStream;
import atoll.core.template.Limits;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** A node under test, claimed, and what contracts of nodes do again and again. */
public abstract class NodeFixture {
    protected final FakeNode fake = new FakeNode();
    Node node = fake;

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

    final ContextId context = ContextId.random();

    BoxId box() {
        BoxId id = BoxId.random();
        BoxSpec spec = new BoxSpec(
                node.images().get(1).digest(),
                Limits.DEFAULT,
                List.of(ContextSpec.of(context, Language.PYTHON)),
                Map.of("atoll.pool", "python@1"));
        assertThat(node.createBox(id, spec).state()).isEqualTo(BoxState.READY);
        return id;
    }

    /** One that is a sandbox's body. */
    BoxId box(SandboxId sandbox) {
        BoxId id = box();
        assertThat(node.assignBox(id, assignment(sandbox)).sandboxId()).contains(sandbox);
        return id;
    }

    static BoxAssignment assignment(SandboxId sandbox) {
        return new BoxAssignment(sandbox, "host", Map.of(), Limits.DEFAULT);
    }

    ExecutionSpec code(String code) {
        return new ExecutionSpec(ExecutionId.random(), context, code, Duration.ofSeconds(30), Map.of("X", "1"));
    }

    static List<NodeEvent> all(NodeStream<NodeEvent> stream) throws InterruptedException {
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

    /** What code printed in a context. */
    String run(BoxId box, ContextId in, String code) throws InterruptedException {
        ExecutionSpec spec = new ExecutionSpec(ExecutionId.random(), in, code, Duration.ofSeconds(30), Map.of());
        return text(all(node.execute(box, spec)), StandardStream.STDOUT);
    }

    String run(BoxId box, String code) throws InterruptedException {
        return run(box, context, code);
    }

    static String text(List<NodeEvent> events, StandardStream stream) {
        StringBuilder text = new StringBuilder();
        for (NodeEvent event : events) {
            if (event instanceof NodeEvent.Output output && output.stream() == stream) {
                text.append(StandardCharsets.UTF_8.decode(output.data().duplicate()));
            }
        }
        return text.toString();
    }

    static NodeEvent.Finish finish(List<NodeEvent> events) {
        return ((NodeEvent.Finished) events.getLast()).finish();
    }

    /** Does it on a thread of its own. */
    static <T> CompletableFuture<T> later(Callable<T> call) {
        CompletableFuture<T> done = new CompletableFuture<>();
        Thread thread = Thread.ofVirtual().unstarted(() -> {
            try {
                done.complete(call.call());
            } catch (Throwable e) {
                done.completeExceptionally(e);
            }
        });
        thread.start();
        return done;
    }

    static void assertFails(ErrorCode code, ThrowingCallable call) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(code));
    }
}
