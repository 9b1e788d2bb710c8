package atoll.core.node;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.SnapshotId;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReader;
import atoll.core.file.FileReply;
import atoll.core.file.FileStat;
import atoll.core.file.FileWriter;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;
import atoll.core.port.ListeningPort;
import atoll.core.port.Tunnel;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.template.Limits;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * Makes a call again while the node is away, up to a limit, so that callers notice nothing when an engine is restarted. That is safe
 * because every call of {@link Node} is idempotent. Streams are passed through: who reads one knows from where it goes on.
 *
 * <p>A call that needs the inside of a box and is refused because the box is paused is made again once it runs, if whoever
 * {@linkplain #onPaused asked to be told} brings that about, and a file is read on where it was cut off. What must not be done twice is made once only, when the box runs; should a
 * pause cross it all the same, the caller gets {@code SANDBOX_PAUSED}. An upload whose bytes were taken is not repeated either.
 *
 * <p>It also notices when a newer server has claimed the node. From then on every call fails at once: this server knows nothing of
 * what the other one does, so whatever it still answered could be wrong.
 */
public final class PatientNode implements Node {
    private static final long FIRST_PAUSE_MILLIS = 5;
    private static final long LONGEST_PAUSE_MILLIS = 250;
    /** So often may a box be paused again before the call it was resumed for got through. */
    private static final int MOST_RESUMES = 20;

    private final Node node;
    private final Duration patience;
    /** The epoch that this server claimed the node with; 0 before. */
    private volatile long claimed;

    private volatile boolean replaced;

    private volatile Function<BoxId, Boolean> resumer = _ -> false;

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

    /**
     * Has {@code resumer} asked when a call was refused because the box is paused: true, once the box runs, and the call is made again;
     * false, and the caller is told {@code SANDBOX_PAUSED}. It is asked on the caller's thread, may take its time, and what it throws
     * the caller gets. Without one nothing is resumed.
     */
    public void onPaused(Function<BoxId, Boolean> resumer) {
        this.resumer = resumer;
    }

    /** To be asked when the node refused a call with {@code CONFLICT}; fails if that was because a newer server owns it. */
    public void requireOwned(AtollException refusal) {
        boolean refused = switch (refusal.code()) {
            case CONFLICT, FILE_CONFLICT, SNAPSHOT_UNUSABLE -> true;
            default -> false;
        };
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

    /** The same for a call that needs the inside of a box. */
    <T> T inside(BoxId box, Supplier<T> call) {
        for (int resumes = 0; ; resumes++) {
            try {
                return patiently(call);
            } catch (AtollException e) {
                if (!resumed(box, e, resumes)) {
                    throw e;
                }
            }
        }
    }

    void inside(BoxId box, Runnable call) {
        boolean done = inside(box, () -> {
            call.run();
            return true;
        });
        assert done;
    }

    /** Whether the node refused because the box is paused, and it now runs; {@code resumes} is how often that was so before. */
    private boolean resumed(BoxId box, AtollException refusal, int resumes) {
        return refusal.code() == ErrorCode.SANDBOX_PAUSED && resumes < MOST_RESUMES && resumer.apply(box);
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

    /** At once: who makes one tries again, or says so. */
    @Override
    public NodeStream<ImageEvent> makeImage(MakeImage request, Optional<InputStream> body) {
        requireOwned();
        return node.makeImage(request, body);
    }

    @Override
    public long deleteImage(String digest) {
        return patiently(() -> node.deleteImage(digest));
    }

    @Override
    public Pruned pruneImages(Collection<String> keepDigests, Instant builtBefore) {
        return patiently(() -> node.pruneImages(keepDigests, builtBefore));
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
        return inside(id, () -> node.updateLimits(id, limits));
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
        return inside(id, () -> node.openContext(id, spec));
    }

    @Override
    public NodeContext restartContext(BoxId id, ContextId context) {
        return inside(id, () -> node.restartContext(id, context));
    }

    @Override
    public void closeContext(BoxId id, ContextId context) {
        inside(id, () -> node.closeContext(id, context));
    }

    @Override
    public List<NodeContext> contexts(BoxId id) {
        return inside(id, () -> node.contexts(id));
    }

    @Override
    public NodeStream<NodeEvent> execute(BoxId box, ExecutionSpec spec) {
        requireOwned();
        return new ResumingStream<>(box, () -> node.execute(box, spec));
    }

    @Override
    public NodeStream<NodeEvent> attach(BoxId box, ExecutionId id, long afterSeq) {
        requireOwned();
        return node.attach(box, id, afterSeq);
    }

    @Override
    public void interrupt(BoxId box, ExecutionId id) {
        inside(box, () -> node.interrupt(box, id));
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
            return inside(box, () -> node.file(box, user, operation));
        }
        return once(box, () -> node.file(box, user, operation));
    }

    @Override
    public FileReader readFile(BoxId box, String user, ReadFile what) {
        FileReader reader = inside(box, () -> node.readFile(box, user, what));
        return what.archive().isPresent() ? reader : new ResumingReader(box, user, what, reader);
    }

    @Override
    public FileWriter writeFile(BoxId box, String user, WriteFile what) {
        return once(box, () -> node.writeFile(box, user, what));
    }

    @Override
    public NodeStream<FileEvent> watchFiles(BoxId box, String user, String path, boolean recursive) {
        requireOwned();
        return new ResumingStream<>(box, () -> node.watchFiles(box, user, path, recursive));
    }

    @Override
    public List<ListeningPort> ports(BoxId box) {
        return inside(box, () -> node.ports(box));
    }

    @Override
    public Tunnel tunnel(BoxId box, int port) {
        return inside(box, () -> node.tunnel(box, port));
    }

    /** For what must not be done twice: waits until the box can be reached, and then has one try. */
    <T> T once(BoxId box, Supplier<T> call) {
        BoxState state = inside(box, () -> reachable(box));
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
        if (state == BoxState.PAUSING || state == BoxState.PAUSED) {
            throw new AtollException(
                    ErrorCode.SANDBOX_PAUSED,
                    "the sandbox is paused",
                    "What was asked for needs it to run.",
                    "Resume it and try again.");
        }
        if (state == BoxState.RECONNECTING || state == BoxState.RESUMING) {
            throw new AtollException(
                    ErrorCode.NODE_UNAVAILABLE,
                    "the sandbox is being reached again",
                    "The engine of the node was restarted, or the sandbox is being resumed.",
                    "Try again in a moment.");
        }
        return state;
    }

    @Override
    public Box prepareBox(BoxId id, BoxSpec spec) {
        return patiently(() -> node.prepareBox(id, spec));
    }

    @Override
    public Box restoreBox(BoxId id, RestoreBox request) {
        return patiently(() -> node.restoreBox(id, request));
    }

    @Override
    public Box pauseBox(BoxId id, SnapshotId snapshot, SnapshotKind kind) {
        return patiently(() -> node.pauseBox(id, snapshot, kind));
    }

    @Override
    public Box resumeBox(BoxId id, Optional<BoxId> prepared, BoxAssignment assignment) {
        return patiently(() -> node.resumeBox(id, prepared, assignment));
    }

    @Override
    public Box rollbackBox(BoxId id, SnapshotId snapshot, Optional<BoxId> prepared, BoxAssignment assignment) {
        return patiently(() -> node.rollbackBox(id, snapshot, prepared, assignment));
    }

    @Override
    public void setDeadline(BoxId id, Optional<Instant> deadline) {
        patiently(() -> node.setDeadline(id, deadline));
    }

    @Override
    public NodeSnapshot createSnapshot(BoxId box, SnapshotId id, SnapshotKind kind, Map<String, String> labels) {
        return patiently(() -> node.createSnapshot(box, id, kind, labels));
    }

    @Override
    public List<NodeSnapshot> snapshots() {
        return patiently(node::snapshots);
    }

    @Override
    public void deleteSnapshot(SnapshotId id) {
        patiently(() -> node.deleteSnapshot(id));
    }

    @Override
    public InputStream exportSnapshot(SnapshotId id) {
        return patiently(() -> node.exportSnapshot(id));
    }

    /** One try, once the node is there: what was read of {@code data} can't be read again. */
    @Override
    public NodeSnapshot importSnapshot(
            SnapshotId id, Map<String, String> labels, List<String> trustedKeys, InputStream data) throws IOException {
        NodeInfo there = patiently(this::info);
        assert there.claimedEpoch() >= 0;
        try {
            return node.importSnapshot(id, labels, trustedKeys, data);
        } catch (AtollException e) {
            requireOwned(e);
            throw e;
        }
    }

    @Override
    public void close() {
        node.close();
    }

    /** A file that is read on where a pause of its box cut it off, if it is still the same. */
    private final class ResumingReader implements FileReader {
        private final BoxId box;
        private final String user;
        private final ReadFile what;
        private final FileStat file;
        private volatile FileReader reader;
        private volatile boolean closed;
        /** For the reader only. */
        private long read;

        private int resumes;

        ResumingReader(BoxId box, String user, ReadFile what, FileReader reader) {
            this.box = box;
            this.user = user;
            this.what = what;
            this.file = reader.file();
            this.reader = reader;
        }

        @Override
        public FileStat file() {
            return file;
        }

        @Override
        public Optional<ByteBuffer> next() throws InterruptedException {
            while (true) {
                try {
                    Optional<ByteBuffer> piece = reader.next();
                    read += piece.map(ByteBuffer::remaining).orElse(0);
                    return piece;
                } catch (AtollException e) {
                    if (e.code() == ErrorCode.SANDBOX_PAUSED && what.length() > 0 && read >= what.length()) {
                        // Nothing was missing but the end.
                        return Optional.empty();
                    }
                    if (closed || !resumed(box, e, resumes++) || !reopened()) {
                        throw e;
                    }
                }
            }
        }

        /** False if what is there now is another file, or another content. */
        private boolean reopened() {
            reader.close();
            long left = what.length() == 0 ? 0 : what.length() - read;
            ReadFile rest = new ReadFile(what.path(), what.offset() + read, left, Optional.empty());
            reader = inside(box, () -> node.readFile(box, user, rest));
            if (closed) {
                reader.close();
            }
            FileStat now = reader.file();
            return now.inode() == file.inode()
                    && now.size() == file.size()
                    && now.modifiedAt().equals(file.modifiedAt());
        }

        @Override
        public void close() {
            closed = true;
            reader.close();
        }
    }

    /**
     * A stream that needs the inside of a box: refused because the box is paused, before anything came, it is asked for again once the
     * box runs.
     */
    private final class ResumingStream<T> implements NodeStream<T> {
        private final BoxId box;
        private final Supplier<NodeStream<T>> open;
        private volatile NodeStream<T> stream;
        private volatile boolean closed;
        /** For the reader only. */
        private boolean begun;

        private int resumes;

        ResumingStream(BoxId box, Supplier<NodeStream<T>> open) {
            this.box = box;
            this.open = open;
            this.stream = opened();
        }

        /** Some nodes refuse at once, some with the first read. */
        private NodeStream<T> opened() {
            while (true) {
                try {
                    return open.get();
                } catch (AtollException e) {
                    if (closed || !resumed(box, e, resumes++)) {
                        throw e;
                    }
                }
            }
        }

        @Override
        public Optional<T> next() throws InterruptedException {
            while (true) {
                try {
                    Optional<T> item = stream.next();
                    begun = true;
                    return item;
                } catch (AtollException e) {
                    if (!reopened(e)) {
                        throw e;
                    }
                }
            }
        }

        private boolean reopened(AtollException refusal) {
            if (begun || closed || !resumed(box, refusal, resumes++)) {
                return false;
            }
            stream.close();
            stream = opened();
            if (closed) {
                stream.close();
            }
            return true;
        }

        /** Also that it was taken on after a resume: what is sent later must not overtake it there. */
        @Override
        public void awaitAccepted() throws InterruptedException {
            do {
                stream.awaitAccepted();
            } while (stream.refusal().map(this::reopened).orElse(false));
        }

        @Override
        public Optional<AtollException> refusal() {
            return stream.refusal();
        }

        @Override
        public void close() {
            closed = true;
            stream.close();
        }
    }
}
