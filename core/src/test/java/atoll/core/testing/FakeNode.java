package atoll.core.testing;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.execution.ExecutionError;
import atoll.core.execution.ExecutionResult;
import atoll.core.execution.ExitReason;
import atoll.core.execution.MimeBundle;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReader;
import atoll.core.file.FileReply;
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
import atoll.core.node.Image;
import atoll.core.node.ImageEvent;
import atoll.core.node.MakeImage;
import atoll.core.node.Node;
import atoll.core.node.NodeContext;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeExecution;
import atoll.core.node.NodeInfo;
import atoll.core.node.NodeSnapshot;
import atoll.core.node.NodeStream;
import atoll.core.node.RestoreBox;
import atoll.core.port.ListeningPort;
import atoll.core.port.Tunnel;
import atoll.core.sandbox.EndReason;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.template.Limits;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * A node in memory. Its language has one command a line: {@code print TEXT}, {@code err TEXT}, {@code set NAME VALUE},
 * {@code get NAME}, {@code show TEXT} (a main result), {@code wait GATE} (until {@link #open}), {@code raise NAME MESSAGE},
 * {@code exit CODE}, {@code die} (the whole box), {@code env NAME} (of the call, else of the context, else of the box). Unlike an
 * engine it can be told to go away, to be slow and to fail: {@link #fail}, {@link #failOnce}, {@link #hold} and {@link #at} step into
 * any call of {@link FakeCall}.
 */
public final class FakeNode implements Node {
    static final Instant START = Instant.parse("2026-01-01T00:00:00Z");

    /** Guards everything here; most of it is touched in lambdas that run under it. */
    final Object lock = new Object();

    final Map<BoxId, FakeBox> boxes = new LinkedHashMap<>();

    private final Map<ExecutionId, FakeExecution> executions = new LinkedHashMap<>();

    private boolean startsDelayed;

    private final Set<String> openGates = new HashSet<>();

    private List<Image> images = List.of(
            new Image(
                    "typescript-bun",
                    "b".repeat(64),
                    1,
                    List.of(Language.TYPESCRIPT, Language.BASH),
                    Map.of("npm", Map.of("bun", "1.2"))),
            new Image(
                    "python",
                    "a".repeat(64),
                    1,
                    List.of(Language.PYTHON, Language.BASH),
                    Map.of("debian", Map.of("python3", "3.11"))));

    /** Every change of a box, in order. */
    private final List<Box> changes = new ArrayList<>();

    private long epoch;

    /** Streams of an older connection are broken. */
    int connection;

    private boolean away;

    private boolean startsHeld;

    private @Nullable AtollException startFailure;

    private long memoryInUse;

    private Instant usageAt = START;

    private Duration usageCpu = Duration.ofSeconds(1);

    private final FakeProcesses processes = new FakeProcesses(this);

    private final FakeSteps steps = new FakeSteps();

    private final FakeImages making = new FakeImages(this);

    private List<String> recipes =
            List.of("typescript-bun", "typescript-node", "nodejs", "python", "deno", "go", "data-science", "base");

    private final FakeSnapshots snapshots = new FakeSnapshots(this, steps);

    private long diskTotal = 1L << 40;

    private long diskAvailable = 1L << 39;

    private int startsNow;

    private int mostStartsAtOnce;

    private int started;

    /** One server's view: what it mutates carries its epoch. */
    private long callerEpoch;

    static final class FakeBox {
        final BoxId id;
        final BoxSpec spec;
        Limits limits;
        BoxState state = BoxState.READY;
        Optional<SandboxId> sandbox = Optional.empty();
        Optional<Box.End> end = Optional.empty();
        final Map<ContextId, FakeContext> contexts = new LinkedHashMap<>();
        final FakeFiles files = new FakeFiles();
        final FakePorts ports = new FakePorts();
        Map<String, String> env = Map.of();
        Optional<SnapshotId> restoredFrom = Optional.empty();
        Optional<SnapshotId> pausedIn = Optional.empty();
        Optional<SnapshotKind> pauseKind = Optional.empty();
        OptionalLong pauseBytes = OptionalLong.empty();
        Optional<Instant> deadline = Optional.empty();
        /** What its kernels go on with since it was forked, and nobody follows. */
        final List<FakeExecution> ghosts = new ArrayList<>();

        FakeBox(BoxId id, BoxSpec spec) {
            this.id = id;
            this.spec = spec;
            this.limits = spec.limits();
            spec.warmContexts().forEach(context -> contexts.put(context.id(), new FakeContext(context)));
        }

        Box seen() {
            return new Box(
                    id,
                    state,
                    sandbox,
                    spec.labels(),
                    spec.warmContexts(),
                    Optional.of(limits),
                    end,
                    restoredFrom,
                    pausedIn,
                    pausedIn.flatMap(_ -> pauseKind),
                    pauseBytes,
                    contexts.values().stream()
                            .map(context -> new NodeSnapshot.Held(context.spec.id(), context.spec.language()))
                            .toList(),
                    deadline);
        }

        /** Nothing in it moves. */
        boolean isStill() {
            return switch (state) {
                case PAUSING, PAUSED, RESUMING -> true;
                case CREATING, READY, RECONNECTING, ENDED, DELETED, PREPARED -> false;
            };
        }

        void assign(BoxAssignment assignment) {
            if (sandbox.isPresent() && !sandbox.get().equals(assignment.sandboxId())) {
                throw error(ErrorCode.CONFLICT, "box " + id + " has a sandbox already");
            }
            sandbox = Optional.of(assignment.sandboxId());
            limits = withFixed(this, assignment.limits());
            env = assignment.env();
            deadline = assignment.deadline();
        }
    }

    static final class FakeContext {
        final ContextSpec spec;
        final Map<String, String> state = new HashMap<>();
        int restarts;

        FakeContext(ContextSpec spec) {
            this.spec = spec;
        }

        NodeContext seen() {
            return new NodeContext(
                    spec.id(),
                    "1.0",
                    spec.cwd().isEmpty() ? "/work" : spec.cwd(),
                    NodeContext.State.IDLE,
                    restarts,
                    "");
        }
    }

    static final class FakeExecution {
        final ExecutionSpec spec;
        final FakeBox box;
        final List<NodeEvent> events = new ArrayList<>();
        /** The line it is at. */
        int line;

        boolean interrupted;
        boolean finished;
        boolean acknowledged;

        FakeExecution(ExecutionSpec spec, FakeBox box) {
            this.spec = spec;
            this.box = box;
        }
    }

    // What tests do to it.

    /** Breaks all streams; every call fails until {@link #comeBack}. What runs goes on. */
    public void goAway() {
        synchronized (lock) {
            away = true;
            connection++;
            processes.breakWaits();
            lock.notifyAll();
        }
    }

    /** A newer server claims the node; the one that had it is refused from now on. */
    public void claimForAnother() {
        synchronized (lock) {
            epoch++;
        }
    }

    /** Executions are unknown to all but who starts them, as long as their start is on its way. */
    public void delayStarts(boolean delay) {
        synchronized (lock) {
            startsDelayed = delay;
        }
    }

    public void comeBack() {
        synchronized (lock) {
            away = false;
            lock.notifyAll();
        }
    }

    /** A point that calls wait at. */
    public interface Hold {
        /** Waits until a call has come there. */
        void awaitReached();

        /** How many calls have come there. */
        int reached();

        /** Lets those go that wait there, and all that come later. */
        void release();
    }

    /** Calls fail so at the step, until this is called with null. */
    public void fail(FakeCall call, FakeCall.Step step, @Nullable AtollException how) {
        steps.at(call, step, Optional.ofNullable(how).map(FakeSteps::failing));
    }

    /** The next call that comes to the step fails so, and no other. */
    public void failOnce(FakeCall call, FakeCall.Step step, AtollException how) {
        steps.once(call, step, FakeSteps.failing(how));
    }

    /** Calls that come to the step wait there. */
    public Hold hold(FakeCall call, FakeCall.Step step) {
        var gate = new FakeSteps.Gate(call + " " + step);
        steps.at(call, step, Optional.of(gate::pass));
        return gate;
    }

    /** Calls that come to the step do this there, without a lock held; what it throws, they fail with. */
    public void at(FakeCall call, FakeCall.Step step, Runnable action) {
        steps.at(call, step, Optional.of(action));
    }

    /** Its snapshots, and what tests do to them. */
    public FakeSnapshots stored() {
        return snapshots;
    }

    /** As the node reports it; a node whose disk has nothing left writes no snapshot. */
    public void setDisk(long totalBytes, long availableBytes) {
        synchronized (lock) {
            diskTotal = totalBytes;
            diskAvailable = availableBytes;
        }
    }

    boolean hasImage(String digest) {
        return images.stream().map(Image::digest).anyMatch(digest::equals);
    }

    boolean hasDisk(long bytes) {
        return diskAvailable >= bytes;
    }

    /** What a box was assigned. */
    public Map<String, String> envOf(BoxId id) {
        synchronized (lock) {
            return known(id).env;
        }
    }

    /** The digest of the image that a box was made from. */
    public String imageOf(BoxId id) {
        synchronized (lock) {
            return known(id).spec.imageDigest();
        }
    }

    /** Lets executions pass {@code wait GATE}. */
    public void open(String gate) {
        synchronized (lock) {
            openGates.add(gate);
            lock.notifyAll();
        }
    }

    boolean isOpen(String gate) {
        return openGates.contains(gate);
    }

    /** Starts of boxes take until {@link #releaseStarts}. */
    public void holdStarts() {
        synchronized (lock) {
            startsHeld = true;
        }
    }

    public void releaseStarts() {
        synchronized (lock) {
            startsHeld = false;
            lock.notifyAll();
        }
    }

    /** Every start fails so, until it is called with null. */
    public void failStarts(@Nullable AtollException how) {
        synchronized (lock) {
            startFailure = how;
        }
    }

    /** What every box uses: its limit can't be set below. */
    public void useMemory(long bytes) {
        synchronized (lock) {
            memoryInUse = bytes;
        }
    }

    /** How it makes images. */
    public FakeImages making() {
        return making;
    }

    /** Those that it can build images of. */
    public void setRecipes(List<String> now) {
        synchronized (lock) {
            recipes = List.copyOf(now);
        }
    }

    List<String> recipes() {
        return recipes;
    }

    List<Image> imagesNow() {
        return images;
    }

    /** Of a recipe the newest counts. */
    void add(Image image) {
        List<Image> all = new ArrayList<>(images);
        all.removeIf(there -> there.digest().equals(image.digest())
                || (image.origin() == Image.Origin.RECIPE
                        && there.origin() == Image.Origin.RECIPE
                        && there.name().equals(image.name())));
        all.add(image);
        images = List.copyOf(all);
    }

    List<String> removeImages(Predicate<Image> which) {
        List<String> gone = images.stream().filter(which).map(Image::digest).toList();
        images = images.stream().filter(which.negate()).toList();
        return gone;
    }

    Set<String> digestsInUse() {
        Set<String> used = new HashSet<>();
        boxes.values().stream().filter(box -> !box.state.isOver()).forEach(box -> used.add(box.spec.imageDigest()));
        snapshots.list().forEach(snapshot -> used.add(snapshot.imageDigest()));
        return used;
    }

    public void setImages(List<Image> now) {
        synchronized (lock) {
            images = now;
        }
    }

    /** The box ends by itself. */
    public void end(BoxId id, EndReason reason, String detail) {
        synchronized (lock) {
            FakeBox box = boxes.get(id);
            if (box != null) {
                end(box, reason, detail);
            }
        }
    }

    /** The machine was restarted: boxes and executions are gone without a word, but for what is on disk. */
    public void loseEverything() {
        synchronized (lock) {
            boxes.values().removeIf(box -> box.state != BoxState.PAUSED);
            executions.values().removeIf(execution -> execution.box.state != BoxState.PAUSED);
            processes.loseAll();
            lock.notifyAll();
        }
    }

    /** The pause of a box that is paused went wrong on disk: it has ended. */
    public void losePaused(BoxId id) {
        end(id, EndReason.LOST, "what it was is not on disk any more");
    }

    public int mostStartsAtOnce() {
        synchronized (lock) {
            return mostStartsAtOnce;
        }
    }

    /** Boxes started so far. */
    public int started() {
        synchronized (lock) {
            return started;
        }
    }

    public int startsNow() {
        synchronized (lock) {
            return startsNow;
        }
    }

    /** Ended executions that nobody has acknowledged. */
    public int unacknowledged() {
        synchronized (lock) {
            return (int) executions.values().stream()
                    .filter(execution -> execution.finished && !execution.acknowledged)
                    .count();
        }
    }

    /** Whether its output can still be read. */
    public boolean remembers(ExecutionId id) {
        synchronized (lock) {
            return executions.containsKey(id);
        }
    }

    public int liveBoxes() {
        synchronized (lock) {
            return (int)
                    boxes.values().stream().filter(box -> !box.state.isOver()).count();
        }
    }

    /** What is in a box. */
    public FakeFiles filesOf(BoxId id) {
        synchronized (lock) {
            return known(id).files;
        }
    }

    public FakePorts portsOf(BoxId id) {
        synchronized (lock) {
            return known(id).ports;
        }
    }

    FakeBox known(BoxId id) {
        FakeBox box = boxes.get(id);
        if (box == null) {
            throw error(ErrorCode.NOT_FOUND, "no box " + id);
        }
        return box;
    }

    // The port.

    <T> T call(Supplier<T> work) {
        synchronized (lock) {
            checkThere();
            return work.get();
        }
    }

    <T> T mutate(Supplier<T> work) {
        return call(() -> {
            checkEpoch();
            return work.get();
        });
    }

    private void checkThere() {
        if (away) {
            throw unavailable();
        }
    }

    private void checkEpoch() {
        if (callerEpoch < epoch) {
            throw error(ErrorCode.CONFLICT, "a newer server owns this node");
        }
    }

    static AtollException unavailable() {
        return error(ErrorCode.NODE_UNAVAILABLE, "the node is away");
    }

    /** The same, of what broke. */
    public static AtollException unavailable(Throwable cause) {
        return new AtollException(ErrorCode.NODE_UNAVAILABLE, "the node is away", "", "It is a fake node.", cause);
    }

    static AtollException error(ErrorCode code, String message) {
        return new AtollException(code, message, "", "It is a fake node: see the test.");
    }

    @Override
    public NodeInfo info() {
        return call(() -> new NodeInfo(
                "fake",
                "1",
                "1",
                2,
                8L << 30,
                4L << 30,
                diskTotal,
                diskAvailable,
                2,
                boxes.size(),
                START,
                epoch,
                List.of(),
                snapshots.key(),
                List.of("1"),
                List.of(new NodeInfo.BoxRuntime("gvisor", "1", true, "", List.of())),
                recipes));
    }

    @Override
    public void claim(long newEpoch) {
        boolean done = call(() -> {
            if (newEpoch < epoch) {
                throw error(ErrorCode.CONFLICT, "a newer server owns this node");
            }
            epoch = newEpoch;
            callerEpoch = newEpoch;
            return true;
        });
        assert done;
    }

    @Override
    public List<Image> images() {
        return making.images();
    }

    @Override
    public NodeStream<ImageEvent> makeImage(MakeImage request, Optional<InputStream> body) {
        return making.makeImage(request, body);
    }

    @Override
    public long deleteImage(String digest) {
        return making.deleteImage(digest);
    }

    @Override
    public Pruned pruneImages(Collection<String> keepDigests, Instant builtBefore) {
        return making.pruneImages(keepDigests, builtBefore);
    }

    @Override
    public Box createBox(BoxId id, BoxSpec spec) {
        synchronized (lock) {
            checkThere();
            checkEpoch();
            FakeBox there = boxes.get(id);
            if (there != null) {
                return there.seen();
            }
            startsNow++;
            mostStartsAtOnce = Math.max(mostStartsAtOnce, startsNow);
            int mine = connection;
            try {
                while (startsHeld) {
                    lock.wait();
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw unavailable();
            } finally {
                startsNow--;
            }
            if (startFailure != null) {
                throw startFailure;
            }
            FakeBox box = new FakeBox(id, spec);
            boxes.put(id, box);
            started++;
            changed(box);
            if (mine != connection) {
                throw unavailable();
            }
            return box.seen();
        }
    }

    void changed(FakeBox box) {
        changes.add(box.seen());
        lock.notifyAll();
    }

    /** A box whose inside can be reached; waits while that is being decided. */
    FakeBox running(BoxId id) {
        FakeBox box = settled(id);
        if (box.state == BoxState.PAUSED) {
            throw error(ErrorCode.SANDBOX_PAUSED, "box " + id + " is paused");
        }
        return box;
    }

    /** One that runs or is paused, and is not just between the two. */
    FakeBox settled(BoxId id) {
        int mine = connection;
        while (true) {
            FakeBox box = known(id);
            switch (box.state) {
                case ENDED, DELETED -> throw error(ErrorCode.CONFLICT, "box " + id + " has ended");
                case PREPARED -> throw error(ErrorCode.CONFLICT, "box " + id + " has nothing in it");
                case CREATING, READY, RECONNECTING, PAUSED -> {
                    return box;
                }
                case PAUSING, RESUMING -> pause(mine);
            }
        }
    }

    /** Until something may have changed. */
    @SuppressWarnings("WaitNotInLoop") // The loop is the caller's.
    void pause(int mine) {
        try {
            lock.wait();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw unavailable();
        }
        if (mine != connection) {
            throw unavailable();
        }
    }

    @Override
    public Box assignBox(BoxId id, BoxAssignment assignment) {
        steps.reach(FakeCall.ASSIGN_BOX, FakeCall.Step.BEFORE);
        Box assigned = mutate(() -> {
            FakeBox box = running(id);
            box.assign(assignment);
            changed(box);
            return box.seen();
        });
        steps.reach(FakeCall.ASSIGN_BOX, FakeCall.Step.AFTER);
        return assigned;
    }

    /** The size of the writable layer is fixed when the box is made. */
    static Limits withFixed(FakeBox box, Limits limits) {
        return new Limits(
                limits.memoryBytes(),
                limits.cpuMillis(),
                box.spec.limits().diskBytes(),
                limits.maxProcesses(),
                limits.maxOpenFiles());
    }

    @Override
    public Box updateLimits(BoxId id, Limits limits) {
        return mutate(() -> {
            FakeBox box = running(id);
            if (limits.memoryBytes() < memoryInUse) {
                throw error(ErrorCode.CONFLICT, "box " + id + " uses more memory than that");
            }
            box.limits = withFixed(box, limits);
            changed(box);
            return box.seen();
        });
    }

    @Override
    public Optional<Box> box(BoxId id) {
        return call(() -> Optional.ofNullable(boxes.get(id)).map(FakeBox::seen));
    }

    @Override
    public List<Box> boxes() {
        List<Box> listed = call(() -> boxes.values().stream().map(FakeBox::seen).toList());
        steps.reach(FakeCall.LIST_BOXES, FakeCall.Step.AFTER);
        return listed;
    }

    @Override
    public void deleteBox(BoxId id) {
        steps.reach(FakeCall.DELETE_BOX, FakeCall.Step.BEFORE);
        boolean done = mutate(() -> {
            FakeBox box = boxes.get(id);
            if (box != null) {
                end(box, EndReason.DELETED, "deleted");
                boxes.remove(id);
                box.state = BoxState.DELETED;
                changed(box);
            }
            return true;
        });
        assert done;
        steps.reach(FakeCall.DELETE_BOX, FakeCall.Step.AFTER);
    }

    private void end(FakeBox box, EndReason reason, String detail) {
        if (box.state.isOver()) {
            return;
        }
        box.state = BoxState.ENDED;
        box.end = Optional.of(new Box.End(reason, detail, START));
        box.pausedIn = Optional.empty();
        box.pauseBytes = OptionalLong.empty();
        endAllIn(box, ExitReason.SANDBOX_ENDED, detail);
        changed(box);
    }

    /** Ends whatever runs in it. */
    void endAllIn(FakeBox box, ExitReason reason, String detail) {
        runningIn(box).forEach(execution -> finish(execution, reason, Optional.empty(), 0, detail));
        box.ghosts.forEach(ghost -> ghost.finished = true);
        box.ghosts.clear();
        processes.endAllIn(box, reason, detail);
    }

    List<FakeExecution> runningIn(FakeBox box) {
        return executions.values().stream()
                .filter(execution -> execution.box == box && !execution.finished)
                .toList();
    }

    /** Has a forked box's kernel go on with what the source's was at. */
    void haunt(FakeBox box, ExecutionSpec spec, int line) {
        FakeExecution ghost = new FakeExecution(spec, box);
        ghost.line = line;
        box.ghosts.add(ghost);
        Thread runner = Thread.ofVirtual().name("fake-ghost").unstarted(() -> run(ghost));
        runner.start();
    }

    @Override
    public NodeStream<Box> watchBoxes() {
        synchronized (lock) {
            checkThere();
            List<Box> first = boxes.values().stream().map(FakeBox::seen).toList();
            int from = changes.size();
            return new FakeStream<>(connection) {
                private int position;

                @Override
                Optional<Box> ready() {
                    if (position < first.size()) {
                        return Optional.of(first.get(position++));
                    }
                    int index = from + position - first.size();
                    if (index < changes.size()) {
                        position++;
                        return Optional.of(changes.get(index));
                    }
                    return Optional.empty();
                }

                @Override
                boolean over() {
                    return false;
                }
            };
        }
    }

    @Override
    public NodeContext openContext(BoxId id, ContextSpec spec) {
        return mutate(() -> {
            if (spec.cwd().equals("/nowhere")) {
                throw error(ErrorCode.INVALID_REQUEST, "no folder " + spec.cwd());
            }
            return running(id)
                    .contexts
                    .computeIfAbsent(spec.id(), _ -> new FakeContext(spec))
                    .seen();
        });
    }

    @Override
    public NodeContext restartContext(BoxId id, ContextId context) {
        return mutate(() -> {
            FakeContext there = running(id).contexts.get(context);
            if (there == null) {
                throw error(ErrorCode.NOT_FOUND, "no context " + context);
            }
            endAllIn(id, context);
            there.state.clear();
            there.restarts++;
            return there.seen();
        });
    }

    @Override
    public void closeContext(BoxId id, ContextId context) {
        boolean done = mutate(() -> {
            FakeBox box = running(id);
            endAllIn(id, context);
            box.contexts.remove(context);
            return true;
        });
        assert done;
    }

    private void endAllIn(BoxId box, ContextId context) {
        executions.values().stream()
                .filter(execution -> execution.box.id.equals(box)
                        && execution.spec.contextId().equals(context)
                        && !execution.finished)
                .forEach(execution -> finish(execution, ExitReason.KERNEL_DIED, Optional.empty(), 0, "restarted"));
    }

    @Override
    public List<NodeContext> contexts(BoxId id) {
        return call(() ->
                running(id).contexts.values().stream().map(FakeContext::seen).toList());
    }

    @Override
    public FakeProcesses processes() {
        return processes;
    }

    @Override
    public List<BoxUsage> sampleUsage() {
        return call(() -> boxes.values().stream()
                .filter(box -> !box.state.isOver() && box.state != BoxState.PAUSED && box.state != BoxState.PREPARED)
                .map(box -> new BoxUsage(
                        box.id,
                        box.sandbox,
                        usageAt,
                        usageCpu,
                        Duration.ofMillis(3),
                        50L << 20,
                        60L << 20,
                        7L << 20,
                        processes.runningIn(box.id) + 1,
                        Optional.of(box.limits)))
                .toList());
    }

    /** What every box has used by now. */
    public void use(Instant at, Duration cpu) {
        synchronized (lock) {
            usageAt = at;
            usageCpu = cpu;
        }
    }

    @Override
    public NodeStream<NodeEvent> execute(BoxId box, ExecutionSpec spec) {
        synchronized (lock) {
            checkThere();
            checkEpoch();
            FakeExecution execution = executions.get(spec.id());
            if (execution == null) {
                FakeBox in = running(box);
                if (!in.contexts.containsKey(spec.contextId())) {
                    throw error(ErrorCode.NOT_FOUND, "no context " + spec.contextId());
                }
                execution = new FakeExecution(spec, in);
                executions.put(spec.id(), execution);
                FakeExecution begun = execution;
                Thread runner = Thread.ofVirtual().name("fake-" + spec.id()).unstarted(() -> run(begun));
                runner.start();
            }
            return events(execution, 0);
        }
    }

    private NodeStream<NodeEvent> events(FakeExecution execution, long after) {
        synchronized (lock) {
            return new FakeStream<>(connection) {
                private int position = (int) after;

                @Override
                Optional<NodeEvent> ready() {
                    return position < execution.events.size()
                            ? Optional.of(execution.events.get(position++))
                            : Optional.empty();
                }

                @Override
                boolean over() {
                    return execution.finished;
                }
            };
        }
    }

    @Override
    public NodeStream<NodeEvent> attach(BoxId box, ExecutionId id, long afterSeq) {
        return call(() -> events(execution(id), afterSeq));
    }

    private FakeExecution execution(ExecutionId id) {
        FakeExecution execution = executions.get(id);
        if (execution == null || startsDelayed) {
            throw error(ErrorCode.NOT_FOUND, "no execution " + id);
        }
        return execution;
    }

    @Override
    public void interrupt(BoxId box, ExecutionId id) {
        boolean done = mutate(() -> {
            FakeExecution execution = execution(id);
            if (!execution.finished) {
                FakeBox in = running(box);
                assert in.id.equals(box);
            }
            execution.interrupted = true;
            lock.notifyAll();
            return true;
        });
        assert done;
    }

    @Override
    public List<NodeExecution> executions() {
        return call(() -> executions.values().stream()
                .filter(execution -> !execution.acknowledged)
                .map(execution -> new NodeExecution(
                        execution.spec.id(),
                        execution.box.id,
                        execution.spec.contextId(),
                        execution.box.sandbox,
                        !execution.finished))
                .toList());
    }

    @Override
    public OutputReader readOutput(BoxId box, ExecutionId id, StandardStream stream, long offset, boolean follow) {
        NodeStream<NodeEvent> events = attach(box, id, 0);
        return new OutputReader() {
            private boolean closed;

            @Override
            public Optional<Piece> next() throws InterruptedException {
                while (!closed) {
                    Optional<NodeEvent> event = events.next();
                    if (event.isEmpty() || event.get() instanceof NodeEvent.Finished) {
                        return Optional.empty();
                    }
                    if (event.get() instanceof NodeEvent.Output output
                            && output.stream() == stream
                            && output.offset() + output.data().remaining() > offset) {
                        int skip = (int) Math.max(0, offset - output.offset());
                        ByteBuffer data = output.data().duplicate();
                        data.position(data.position() + skip);
                        return Optional.of(new Piece(output.offset() + skip, data.slice(), 0));
                    }
                }
                return Optional.empty();
            }

            @Override
            public void close() {
                closed = true;
                events.close();
            }
        };
    }

    @Override
    public void forgetExecutions(List<ExecutionId> ids, boolean keepSpool) {
        boolean done = mutate(() -> {
            ids.forEach(id -> {
                FakeExecution execution = executions.get(id);
                if (execution != null && execution.finished) {
                    execution.acknowledged = true;
                    if (!keepSpool) {
                        executions.remove(id);
                    }
                }
            });
            return true;
        });
        assert done;
    }

    @Override
    public FileReply file(BoxId box, String user, FileOperation operation) {
        return inside(box).files.apply(user, operation);
    }

    @Override
    public FileReader readFile(BoxId box, String user, ReadFile what) {
        return inside(box).files.read(user, what, link(box));
    }

    @Override
    public FileWriter writeFile(BoxId box, String user, WriteFile what) {
        return inside(box).files.write(user, what, link(box));
    }

    @Override
    public NodeStream<FileEvent> watchFiles(BoxId box, String user, String path, boolean recursive) {
        return inside(box).files.watch(user, path, recursive, link(box));
    }

    @Override
    public List<ListeningPort> ports(BoxId box) {
        return call(() -> running(box).ports.list());
    }

    @Override
    public Tunnel tunnel(BoxId box, int port) {
        return call(() -> running(box).ports.connect(port));
    }

    /** As in an engine, the statuses of file calls speak of files, whatever they are about. */
    private FakeBox inside(BoxId id) {
        try {
            return call(() -> running(id));
        } catch (AtollException e) {
            throw switch (e.code()) {
                case NOT_FOUND -> error(ErrorCode.FILE_NOT_FOUND, e.message());
                case CONFLICT -> error(ErrorCode.FILE_CONFLICT, e.message());
                default -> e;
            };
        }
    }

    private FakeFiles.Link link(BoxId id) {
        int mine;
        synchronized (lock) {
            mine = connection;
        }
        return () -> {
            synchronized (lock) {
                if (away || mine != connection) {
                    throw unavailable();
                }
            }
            FakeBox there = inside(id);
            assert there.id.equals(id);
        };
    }

    @Override
    public Box prepareBox(BoxId id, BoxSpec spec) {
        return snapshots.prepareBox(id, spec);
    }

    @Override
    public Box restoreBox(BoxId id, RestoreBox request) {
        return snapshots.restoreBox(id, request);
    }

    @Override
    public Box pauseBox(BoxId id, SnapshotId snapshot, SnapshotKind kind) {
        return snapshots.pauseBox(id, snapshot, kind);
    }

    @Override
    public Box resumeBox(BoxId id, Optional<BoxId> prepared, BoxAssignment assignment) {
        return snapshots.resumeBox(id, prepared, assignment);
    }

    @Override
    public Box rollbackBox(BoxId id, SnapshotId snapshot, Optional<BoxId> prepared, BoxAssignment assignment) {
        return snapshots.rollbackBox(id, snapshot, prepared, assignment);
    }

    @Override
    public void setDeadline(BoxId id, Optional<Instant> deadline) {
        snapshots.setDeadline(id, deadline);
    }

    @Override
    public NodeSnapshot createSnapshot(BoxId box, SnapshotId id, SnapshotKind kind, Map<String, String> labels) {
        return snapshots.createSnapshot(box, id, kind, labels);
    }

    @Override
    public List<NodeSnapshot> snapshots() {
        return snapshots.list();
    }

    @Override
    public void deleteSnapshot(SnapshotId id) {
        snapshots.delete(id);
    }

    @Override
    public InputStream exportSnapshot(SnapshotId id) {
        return snapshots.export(id);
    }

    @Override
    public NodeSnapshot importSnapshot(
            SnapshotId id, Map<String, String> labels, List<String> trustedKeys, InputStream data) throws IOException {
        return snapshots.importFile(id, labels, trustedKeys, data);
    }

    @Override
    public void close() {}

    /** Items that appear over time; broken when the node goes away. */
    abstract class FakeStream<T> implements NodeStream<T> {
        private final int mine;
        private boolean closed;

        FakeStream(int mine) {
            this.mine = mine;
        }

        /** What is there to be taken. */
        abstract Optional<T> ready();

        abstract boolean over();

        @Override
        public Optional<T> next() throws InterruptedException {
            synchronized (lock) {
                while (true) {
                    if (mine != connection || closed) {
                        throw unavailable();
                    }
                    Optional<T> item = ready();
                    if (item.isPresent() || over()) {
                        return item;
                    }
                    lock.wait();
                }
            }
        }

        @Override
        public void close() {
            synchronized (lock) {
                closed = true;
                lock.notifyAll();
            }
        }
    }

    // Its interpreter.

    private void run(FakeExecution execution) {
        synchronized (lock) {
            if (execution.line == 0) {
                say(execution, new NodeEvent.Started(1, START));
            }
            String[] lines = execution.spec.code().split("\n", -1);
            while (execution.line < lines.length) {
                String[] words = lines[execution.line].split(" ", 2);
                if (!canGoOn(execution) || !step(execution, words[0], words.length > 1 ? words[1] : "")) {
                    return;
                }
                execution.line++;
            }
            if (canGoOn(execution)) {
                finish(execution, ExitReason.COMPLETED, Optional.empty(), 0, "");
            }
        }
    }

    /** Waits while its box stands still; false if it has ended. */
    private boolean canGoOn(FakeExecution execution) {
        try {
            while (execution.box.isStill() && !execution.finished) {
                lock.wait();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
        return !execution.finished;
    }

    /** One line; false when it was the last. */
    private boolean step(FakeExecution execution, String command, String rest) {
        Map<String, String> state = execution.box.contexts.computeIfAbsent(
                        execution.spec.contextId(), id -> new FakeContext(ContextSpec.of(id, Language.PYTHON)))
                .state;
        switch (command) {
            case "print" -> print(execution, StandardStream.STDOUT, rest + "\n");
            case "err" -> print(execution, StandardStream.STDERR, rest + "\n");
            case "set" -> {
                String[] words = rest.split(" ", 2);
                state.put(words[0], words[1]);
            }
            case "get" -> print(execution, StandardStream.STDOUT, state.getOrDefault(rest, "undefined") + "\n");
            case "env" -> print(execution, StandardStream.STDOUT, env(execution, rest) + "\n");
            case "show" ->
                say(
                        execution,
                        new NodeEvent.Result(
                                execution.events.size() + 1L,
                                new ExecutionResult(
                                        true,
                                        new MimeBundle("{\"text/plain\":\"" + rest + "\"}", Optional.of(rest)),
                                        0)));
            case "wait" -> {
                return waitFor(execution, rest);
            }
            case "raise" -> {
                String[] words = rest.split(" ", 2);
                ExecutionError error =
                        new ExecutionError(words[0], words[1], "Traceback\n" + words[0] + ": " + words[1]);
                finish(execution, ExitReason.ERROR, Optional.of(error), 0, "");
                return false;
            }
            case "exit" -> {
                finish(execution, ExitReason.EXITED, Optional.empty(), Integer.parseInt(rest), "");
                return false;
            }
            case "die" -> {
                end(execution.box, EndReason.CRASHED, "its agent ended");
                return false;
            }
            default -> {
                ExecutionError error = new ExecutionError("SyntaxError", command, "SyntaxError: " + command);
                finish(execution, ExitReason.ERROR, Optional.of(error), 0, "");
                return false;
            }
        }
        return true;
    }

    private static String env(FakeExecution execution, String name) {
        FakeContext context = execution.box.contexts.get(execution.spec.contextId());
        Map<String, String> env = new HashMap<>(execution.box.env);
        env.putAll(context == null ? Map.of() : context.spec.env());
        env.putAll(execution.spec.env());
        return env.getOrDefault(name, "");
    }

    private boolean waitFor(FakeExecution execution, String gate) {
        try {
            while ((!openGates.contains(gate) || execution.box.isStill()) && !execution.finished) {
                if (execution.interrupted && !execution.box.isStill()) {
                    finish(execution, ExitReason.INTERRUPTED, Optional.empty(), 0, "");
                    return false;
                }
                lock.wait();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return !execution.finished;
    }

    private void print(FakeExecution execution, StandardStream stream, String text) {
        long offset = printed(execution, stream);
        say(
                execution,
                new NodeEvent.Output(
                        execution.events.size() + 1L,
                        stream,
                        offset,
                        ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8))));
    }

    private static long printed(FakeExecution execution, StandardStream stream) {
        long bytes = 0;
        for (NodeEvent event : execution.events) {
            if (event instanceof NodeEvent.Output output && output.stream() == stream) {
                bytes += output.data().remaining();
            }
        }
        return bytes;
    }

    private void say(FakeExecution execution, NodeEvent event) {
        execution.events.add(event);
        lock.notifyAll();
    }

    private void finish(
            FakeExecution execution, ExitReason reason, Optional<ExecutionError> error, int exitCode, String detail) {
        NodeEvent.Finish finish = new NodeEvent.Finish(
                reason,
                error,
                reason == ExitReason.EXITED ? OptionalInt.of(exitCode) : OptionalInt.empty(),
                OptionalInt.empty(),
                reason != ExitReason.SANDBOX_ENDED && reason != ExitReason.LOST,
                detail,
                START,
                Duration.ofMillis(5),
                printed(execution, StandardStream.STDOUT),
                printed(execution, StandardStream.STDERR),
                Optional.empty());
        execution.finished = true;
        say(execution, new NodeEvent.Finished(execution.events.size() + 1L, finish));
    }
}
