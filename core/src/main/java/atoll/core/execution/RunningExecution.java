package atoll.core.execution;

import atoll.core.AtollException;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.SandboxId;
import atoll.core.node.EventFollower;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeStream;
import atoll.core.node.PatientNode;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * Follows one execution on the node to its end, for a caller or for nobody. When the stream breaks it is taken up again after the
 * last event seen, so neither a lost nor a doubled event is passed on. A caller that closes hands over to a background thread, which
 * finishes the record.
 */
final class RunningExecution implements ExecutionHandle {
    /** Where the events come from, and who wants to know the end. */
    interface Source {
        /** The stream from its very beginning: starts the execution, or attaches to it. */
        NodeStream<NodeEvent> open();

        NodeStream<NodeEvent> openAfter(long seq);

        /** Stops it as Ctrl-C would. */
        void interrupt();

        /**
         * The node says that it can't go on.
         *
         * @return how the execution ended then, for one that had begun
         * @throws AtollException to the caller, for one that never ran
         */
        NodeEvent.Finish broken(AtollException e, boolean begun);

        /** Mends what can be mended, e.g. opens a lost context again; true if the stream is worth another try. */
        boolean repaired(AtollException e);

        /** Called once, before the caller gets the outcome. */
        void ended(ExecutionOutcome outcome);

        /** Nobody follows it any more, and its end is not known. */
        void abandoned();
    }

    private final ExecutionId id;
    private final SandboxId sandbox;
    private final ContextId context;
    private final Source source;
    private final Executor background;

    /** Held by whoever takes the next event. */
    private final ReentrantLock reading = new ReentrantLock();

    @GuardedBy("reading")
    private final Transcript transcript = new Transcript();

    @GuardedBy("reading")
    private final EventFollower events;

    @GuardedBy("reading")
    private @Nullable ExecutionOutcome outcome;

    private volatile OptionalLong number = OptionalLong.empty();
    private volatile boolean over;
    private volatile boolean closed;

    RunningExecution(
            ExecutionId id,
            SandboxId sandbox,
            ContextId context,
            Source source,
            PatientNode node,
            Executor background) {
        this.id = id;
        this.sandbox = sandbox;
        this.context = context;
        this.source = source;
        this.background = background;
        this.events =
                new EventFollower("execution " + id, node, 0, seq -> seq == 0 ? source.open() : source.openAfter(seq));
    }

    /** Asks the node, so that the execution is under way before anyone reads from it. */
    void begin() {
        reading.lock();
        try {
            events.begin();
        } finally {
            reading.unlock();
        }
    }

    /** The same; nothing that is sent to its context later can overtake it when this returns. */
    void beginAccepted() throws InterruptedException {
        reading.lockInterruptibly();
        try {
            events.beginAccepted();
        } finally {
            reading.unlock();
        }
    }

    @Override
    public ExecutionId executionId() {
        return id;
    }

    /** It is the how-manieth of its context. */
    void numbered(long inContext) {
        number = OptionalLong.of(inContext);
    }

    @Override
    public OptionalLong number() {
        return number;
    }

    @Override
    public SandboxId sandboxId() {
        return sandbox;
    }

    @Override
    public ContextId contextId() {
        return context;
    }

    @Override
    public Optional<ExecutionUpdate> next() throws InterruptedException {
        return closed ? Optional.empty() : read();
    }

    @Override
    public ExecutionOutcome await() throws InterruptedException {
        while (true) {
            Optional<ExecutionUpdate> update = read();
            if (update.isEmpty()) {
                return outcome();
            }
        }
    }

    private ExecutionOutcome outcome() {
        reading.lock();
        try {
            if (outcome == null) {
                throw new IllegalStateException("execution " + id + " has failed: its error was thrown before");
            }
            return outcome;
        } finally {
            reading.unlock();
        }
    }

    private Optional<ExecutionUpdate> read() throws InterruptedException {
        reading.lockInterruptibly();
        try {
            while (!over) {
                Optional<ExecutionUpdate> update = take(event());
                if (update.isPresent()) {
                    return update;
                }
            }
            return Optional.empty();
        } finally {
            reading.unlock();
        }
    }

    @GuardedBy("reading")
    private Optional<ExecutionUpdate> take(NodeEvent event) {
        return switch (event) {
            case NodeEvent.Started _ -> Optional.empty();
            case NodeEvent.Output output -> {
                transcript.add(output);
                yield Optional.of(new ExecutionUpdate.Output(output.stream(), output.data(), output.offset()));
            }
            case NodeEvent.Gap gap -> {
                transcript.add(gap);
                yield Optional.of(new ExecutionUpdate.Gap(gap.stream(), gap.offset(), gap.bytes()));
            }
            case NodeEvent.Result result -> {
                transcript.add(result.result());
                yield Optional.of(new ExecutionUpdate.Result(result.result()));
            }
            case NodeEvent.Finished finished -> {
                outcome = transcript.finish(id, sandbox, context, finished.finish());
                over = true;
                source.ended(outcome);
                yield Optional.of(new ExecutionUpdate.Finished(outcome));
            }
        };
    }

    /** The next event, over as many streams as it takes. */
    @GuardedBy("reading")
    private NodeEvent event() throws InterruptedException {
        while (true) {
            try {
                return events.next().orElseThrow();
            } catch (AtollException e) {
                if (e.code() == ErrorCode.NODE_UNAVAILABLE) {
                    // Its end is not known, and it may well go on: no outcome is recorded, the next start takes it up
                    // again.
                    throw e;
                }
                if (events.lastSeq() == 0 && source.repaired(e)) {
                    continue;
                }
                return broken(e);
            }
        }
    }

    @GuardedBy("reading")
    private NodeEvent broken(AtollException e) {
        try {
            return new NodeEvent.Finished(events.lastSeq() + 1, source.broken(e, events.lastSeq() > 0));
        } catch (AtollException toCaller) {
            over = true;
            source.abandoned();
            throw toCaller;
        }
    }

    @Override
    public void interrupt() {
        if (!over) {
            source.interrupt();
        }
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        if (!over) {
            background.execute(this::finishAlone);
        }
    }

    /** Reads to the end for the record's sake. */
    void finishAlone() {
        try {
            ExecutionOutcome end = await();
            assert end.executionId().equals(id);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (AtollException e) {
            source.abandoned();
            System.getLogger(RunningExecution.class.getName())
                    .log(System.Logger.Level.INFO, "execution " + id + " is not followed any more: " + e.getMessage());
        } finally {
            reading.lock();
            try {
                events.close();
            } finally {
                reading.unlock();
            }
        }
    }

    /** An end that the server has to make up, because nobody can tell a better one. */
    static NodeEvent.Finish madeUp(ExitReason reason, String detail, Instant startedAt) {
        return new NodeEvent.Finish(
                reason,
                Optional.empty(),
                OptionalInt.empty(),
                OptionalInt.empty(),
                false,
                detail,
                startedAt,
                Duration.ZERO,
                0,
                0,
                Optional.empty());
    }
}
