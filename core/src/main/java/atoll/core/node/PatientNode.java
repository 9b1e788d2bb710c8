package atoll.core.node;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReader;
import atoll.core.file.FileReply;
import atoll.core.file.FileWriter;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;
import atoll.core.port.ListeningPort;
import atoll.core.port.Tunnel;
import atoll.core.template.Limits;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;

/**
 * Makes a call again while the node is away, up to a limit, so that callers notice nothing when an engine is restarted. That is safe
 * because every call of {@link Node} is idempotent. Streams are passed through: who reads one knows from where it goes on.
 *
 * <p>It also notices when a newer server has claimed the node. From then on every call fails at once: this server knows nothing of
 * what the other one does, so whatever it still answered could be wrong.
 */
public final class PatientNode implements Node {
    private static final long FIRST_PAUSE_MILLIS = 5;
    private static final long LONGEST_PAUSE_MILLIS = 250;

    private final Node node;
    private final Duration patience;
    /** The epoch that this server claimed the node with; 0 before. */
    private volatile long claimed;

    private volatile boolean replaced;

    private final PatientProcesses processes;

    public PatientNode(Node node, Duration patience) {
        this.node = node;
        this.patience = patience;
        this.processes = new PatientProcesses(this, node.processes());
    }

    /** Whether a newer server owns the node. */
    public boolean replaced() {
        return replaced;
    }

    /** To be asked when the node refused a call with {@code CONFLICT}; fails if that was because a newer server owns it. */
    public void requireOwned(AtollException refusal) {
        boolean refused = refusal.code() == ErrorCode.CONFLICT || refusal.code() == ErrorCode.FILE_CONFLICT;
        if (refused && claimed > 0) {
            NodeInfo info = info();
            assert info.claimedEpoch() >= 0;
        }
        requireOwned();
    }

    /**
     * Fails if a newer server is known to own the node. Whoever stops trying asks this first: the node may have gone, for this server,
     * while it was being tried, and another call noticed why.
     */
    public void requireOwned() {
        if (replaced) {
            throw new AtollException(
                    ErrorCode.NODE_UNAVAILABLE,
                    "This server has been replaced: a newer one has claimed the engine.",
                    "Two servers were started for one engine, and the engine obeys the newer.",
                    "Call the newer server; or stop it and restart this one.");
        }
    }

    /** Waits between two tries; false when the time since {@code startNanos} is up. */
    public boolean pause(int tries, long startNanos) {
        long left = patience.toNanos() - (System.nanoTime() - startNanos);
        if (left <= 0 || replaced) {
            return false;
        }
        long millis = Math.min(LONGEST_PAUSE_MILLIS, FIRST_PAUSE_MILLIS << Math.min(tries, 10));
        try {
            Thread.sleep(Duration.ofNanos(Math.min(left, millis * 1_000_000)));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
        return true;
    }

    <T> T patiently(Supplier<T> call) {
        long start = System.nanoTime();
        for (int tries = 0; ; tries++) {
            requireOwned();
            try {
                return call.get();
            } catch (AtollException e) {
                AtollException why = explained(e);
                if (why.code() != ErrorCode.NODE_UNAVAILABLE || !pause(tries, start)) {
                    requireOwned();
                    throw why;
                }
            }
        }
    }

    /** Why the node refused, or that it went away while it was asked. */
    private AtollException explained(AtollException refusal) {
        try {
            requireOwned(refusal);
            return refusal;
        } catch (AtollException better) {
            return better;
        }
    }

    void patiently(Runnable call) {
        boolean done = patiently(() -> {
            call.run();
            return true;
        });
        assert done;
    }

    @Override
    public NodeInfo info() {
        NodeInfo info = node.info();
        if (claimed > 0 && info.claimedEpoch() > claimed) {
            replaced = true;
        }
        return info;
    }

    @Override
    public void claim(long epoch) {
        try {
            node.claim(epoch);
        } catch (AtollException e) {
            if (e.code() == ErrorCode.CONFLICT) {
                replaced = true;
                requireOwned();
            }
            throw e;
        }
        claimed = epoch;
    }

    @Override
    public List<Image> images() {
        return patiently(node::images);
    }

    @Override
    public Box createBox(BoxId id, BoxSpec spec) {
        return patiently(() -> node.createBox(id, spec));
    }

    @Override
    public Box assignBox(BoxId id, BoxAssignment assignment) {
        return patiently(() -> node.assignBox(id, assignment));
    }

    @Override
    public Box updateLimits(BoxId id, Limits limits) {
        return patiently(() -> node.updateLimits(id, limits));
    }

    @Override
    public Optional<Box> box(BoxId id) {
        return patiently(() -> node.box(id));
    }

    @Override
    public List<Box> boxes() {
        return patiently(node::boxes);
    }

    @Override
    public void deleteBox(BoxId id) {
        patiently(() -> node.deleteBox(id));
    }

    @Override
    public NodeStream<Box> watchBoxes() {
        requireOwned();
        return node.watchBoxes();
    }

    @Override
    public NodeContext openContext(BoxId id, ContextSpec spec) {
        return patiently(() -> node.openContext(id, spec));
    }

    @Override
    public NodeContext restartContext(BoxId id, ContextId context) {
        return patiently(() -> node.restartContext(id, context));
    }

    @Override
    public void closeContext(BoxId id, ContextId context) {
        patiently(() -> node.closeContext(id, context));
    }

    @Override
    public List<NodeContext> contexts(BoxId id) {
        return patiently(() -> node.contexts(id));
    }

    @Override
    public NodeStream<NodeEvent> execute(BoxId box, ExecutionSpec spec) {
        requireOwned();
        return node.execute(box, spec);
    }

    @Override
    public NodeStream<NodeEvent> attach(BoxId box, ExecutionId id, long afterSeq) {
        requireOwned();
        return node.attach(box, id, afterSeq);
    }

    @Override
    public void interrupt(BoxId box, ExecutionId id) {
        patiently(() -> node.interrupt(box, id));
    }

    @Override
    public List<NodeExecution> executions() {
        return patiently(node::executions);
    }

    @Override
    public OutputReader readOutput(BoxId box, ExecutionId id, StandardStream stream, long offset, boolean follow) {
        requireOwned();
        return node.readOutput(box, id, stream, offset, follow);
    }

    @Override
    public void forgetExecutions(List<ExecutionId> ids, boolean keepSpool) {
        patiently(() -> node.forgetExecutions(ids, keepSpool));
    }

    @Override
    public NodeProcesses processes() {
        return processes;
    }

    /** At once: a sample that comes late is worth nothing. */
    @Override
    public List<BoxUsage> sampleUsage() {
        requireOwned();
        return node.sampleUsage();
    }

    @Override
    public FileReply file(BoxId box, String user, FileOperation operation) {
        if (operation.repeatable()) {
            return patiently(() -> node.file(box, user, operation));
        }
        return once(box, () -> node.file(box, user, operation));
    }

    @Override
    public FileReader readFile(BoxId box, String user, ReadFile what) {
        return patiently(() -> node.readFile(box, user, what));
    }

    @Override
    public FileWriter writeFile(BoxId box, String user, WriteFile what) {
        return once(box, () -> node.writeFile(box, user, what));
    }

    @Override
    public NodeStream<FileEvent> watchFiles(BoxId box, String user, String path, boolean recursive) {
        requireOwned();
        return node.watchFiles(box, user, path, recursive);
    }

    @Override
    public List<ListeningPort> ports(BoxId box) {
        return patiently(() -> node.ports(box));
    }

    @Override
    public Tunnel tunnel(BoxId box, int port) {
        return patiently(() -> node.tunnel(box, port));
    }

    /** For what must not be done twice: waits until the box can be reached, and then has one try. */
    private <T> T once(BoxId box, Supplier<T> call) {
        BoxState state = patiently(() -> reachable(box));
        assert state != BoxState.RECONNECTING;
        try {
            return call.get();
        } catch (AtollException e) {
            requireOwned(e);
            throw e;
        }
    }

    private BoxState reachable(BoxId id) {
        BoxState state = node.box(id).map(Box::state).orElse(BoxState.DELETED);
        if (state == BoxState.RECONNECTING) {
            throw new AtollException(
                    ErrorCode.NODE_UNAVAILABLE,
                    "the sandbox is being reached again",
                    "The engine of the node was restarted.",
                    "Try again in a moment.");
        }
        return state;
    }

    @Override
    public void close() {
        node.close();
    }
}
