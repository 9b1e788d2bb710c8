package atoll.core;

import atoll.core.execution.ExecutionService;
import atoll.core.node.Box;
import atoll.core.node.BoxState;
import atoll.core.node.NodeInfo;
import atoll.core.node.NodeStream;
import atoll.core.node.PatientNode;
import atoll.core.pool.Pools;
import atoll.core.process.ProcessService;
import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.SandboxService;
import atoll.core.sandbox.SandboxState;
import atoll.core.store.Store;
import atoll.core.template.TemplateCatalog;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Keeps the store and the node of one mind. On every (re)connection: claim the node, then compare. A sandbox without its box has
 * ended; a box without its sandbox goes to a pool or away; executions and processes are taken over; snapshots are compared with their
 * records. From then on each change of a box is told by
 * the node, until the connection breaks and all of it begins again.
 */
final class Recovery implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(Recovery.class.getName());
    private static final Duration FIRST_PAUSE = Duration.ofMillis(20);
    private static final Duration PULSE = Duration.ofSeconds(1);
    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(1);

    private final Store store;
    private final PatientNode node;
    private final TemplateCatalog templates;
    private final Pools pools;
    private final SandboxService sandboxes;
    private final ExecutionService executions;
    private final ProcessService processes;
    private final Runnable snapshots;

    private final CountDownLatch ready = new CountDownLatch(1);
    private final Thread thread;
    private final Thread pulse;
    private volatile boolean closed;
    private volatile boolean connected;
    private volatile Optional<NodeInfo> lastInfo = Optional.empty();
    private volatile Optional<String> problem = Optional.empty();
    /** 0 until the node was claimed; used by {@link #thread} only. */
    private long epoch;

    /** @param snapshots compares those, once all else is known */
    Recovery(
            Store store,
            PatientNode node,
            TemplateCatalog templates,
            Pools pools,
            SandboxService sandboxes,
            ExecutionService executions,
            ProcessService processes,
            Runnable snapshots) {
        this.store = store;
        this.node = node;
        this.templates = templates;
        this.pools = pools;
        this.sandboxes = sandboxes;
        this.executions = executions;
        this.processes = processes;
        this.snapshots = snapshots;
        this.thread = Thread.ofVirtual().name("recovery").unstarted(this::run);
        this.pulse = Thread.ofVirtual().name("pulse").unstarted(this::feelPulse);
    }

    void start() {
        thread.start();
        pulse.start();
    }

    /** Keeps what the node says of itself fresh, and notices a newer server also while nobody calls. */
    private void feelPulse() {
        while (!closed && !node.replaced()) {
            try {
                Thread.sleep(PULSE);
                if (connected) {
                    lastInfo = Optional.of(node.info());
                }
            } catch (InterruptedException e) {
                return;
            } catch (AtollException e) {
                LOG.log(System.Logger.Level.DEBUG, "no pulse: " + e.getMessage());
            }
        }
        if (!closed) {
            connected = false;
            problem = Optional.of(
                    "this server has been replaced: a newer one has claimed the engine; call that one, or stop it and"
                            + " restart this one");
            LOG.log(System.Logger.Level.ERROR, problem.get());
            thread.interrupt();
        }
    }

    /** Waits until store and node have been compared once; false when the time is up. */
    boolean awaitReady(Duration limit) throws InterruptedException {
        return ready.await(limit.toMillis(), TimeUnit.MILLISECONDS);
    }

    boolean isReady() {
        return ready.getCount() == 0;
    }

    boolean connected() {
        return connected;
    }

    Optional<NodeInfo> lastInfo() {
        return lastInfo;
    }

    /** Whether a newer server owns the node: then this one serves nobody any more. */
    boolean replaced() {
        return node.replaced();
    }

    /** Why there is no connection, if there is none. */
    Optional<String> problem() {
        return problem;
    }

    @Override
    public void close() {
        closed = true;
        pulse.interrupt();
        thread.interrupt();
        try {
            thread.join(Duration.ofSeconds(5));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        Duration pause = FIRST_PAUSE;
        while (!closed) {
            try {
                follow();
                pause = FIRST_PAUSE;
            } catch (InterruptedException e) {
                return;
            } catch (RuntimeException e) {
                report(e);
            }
            if (node.replaced()) {
                // For good: only a new start, with a new epoch, may claim the node again.
                connected = false;
                return;
            }
            pause = connected ? FIRST_PAUSE : pause;
            connected = false;
            try {
                Thread.sleep(pause);
            } catch (InterruptedException e) {
                return;
            }
            pause = pause.multipliedBy(2).compareTo(LONGEST_PAUSE) > 0 ? LONGEST_PAUSE : pause.multipliedBy(2);
        }
    }

    private void report(RuntimeException e) {
        String text = String.valueOf(e.getMessage());
        if (closed || problem.equals(Optional.of(text))) {
            return;
        }
        problem = Optional.of(text);
        boolean expected = e instanceof AtollException known && known.code() == ErrorCode.NODE_UNAVAILABLE;
        if (expected) {
            LOG.log(System.Logger.Level.INFO, "the node is away: " + text);
        } else {
            LOG.log(System.Logger.Level.ERROR, "store and node could not be compared", e);
        }
    }

    /** Returns when the connection has ended. */
    private void follow() throws InterruptedException {
        NodeInfo info = node.info();
        lastInfo = Optional.of(info);
        if (epoch == 0) {
            epoch = store.nextEpoch(info.instance(), info.claimedEpoch());
        }
        node.claim(epoch);
        // The watch is opened first: what changes while the lists are compared is told again by it.
        try (NodeStream<Box> changes = node.watchBoxes()) {
            reconcile();
            connected = true;
            if (problem.isPresent()) {
                LOG.log(System.Logger.Level.INFO, "the node is back");
                problem = Optional.empty();
            }
            pools.start();
            ready.countDown();
            Optional<Box> change = changes.next();
            while (change.isPresent()) {
                changed(change.get());
                change = changes.next();
            }
        }
    }

    private void reconcile() {
        templates.imagesSeen(node.images());
        // Read before the boxes are: a sandbox that was made, or got ready, in between has a box that is not in the
        // list.
        List<LiveSandbox> known = sandboxes.live().stream()
                .filter(sandbox -> !sandbox.underConstruction())
                .toList();
        List<Box> boxes = node.boxes();
        Set<BoxId> present = new HashSet<>();
        boxes.forEach(box -> present.add(box.id()));
        pools.keepOnly(present);
        for (Box box : boxes) {
            if (box.state().isOver()) {
                changed(box);
            } else {
                place(box);
            }
        }
        for (LiveSandbox sandbox : known) {
            if (!present.contains(sandbox.box())) {
                sandboxes.boxEnded(sandbox, Optional.empty());
            }
        }
        executions.reconcile();
        processes.reconcile();
        snapshots.run();
    }

    /** Finds the owner of a running box. */
    private void place(Box box) {
        if (pools.owns(box.id())) {
            return;
        }
        // By its box, not by what the box says: it may have been handed out since the list was made.
        Optional<LiveSandbox> owner = sandboxes.ofBox(box.id());
        boolean neverAssigned = box.sandboxId().isEmpty()
                && owner.filter(live -> live.sandbox().state() == SandboxState.CREATING && !live.underConstruction())
                        .isPresent();
        if (neverAssigned) {
            // An earlier server died before it gave the box away: nobody was told of the sandbox.
            sandboxes.boxEnded(owner.get(), Optional.empty());
        } else if (owner.isPresent()) {
            compare(owner.get(), box);
            return;
        }
        if (box.sandboxId().isEmpty() && pools.adopt(box)) {
            return;
        }
        remove(box.id());
    }

    private void compare(LiveSandbox owner, Box box) {
        if (owner.underConstruction()) {
            return;
        }
        if (owner.sandbox().state() == SandboxState.CREATING) {
            sandboxes.foundRunning(owner);
        }
        sandboxes.reconcile(owner, box);
        box.limits().ifPresent(limits -> sandboxes.align(owner, limits));
    }

    private void changed(Box box) {
        if (!box.state().isOver()) {
            return;
        }
        pools.gone(box.id());
        Optional<LiveSandbox> owner = box.sandboxId()
                .flatMap(sandboxes::live)
                .filter(live -> live.box().equals(box.id()));
        if (owner.isPresent()) {
            sandboxes.boxEnded(owner.get(), Optional.of(box));
        } else if (box.state() != BoxState.DELETED) {
            remove(box.id());
        }
    }

    private void remove(BoxId box) {
        CompletableFuture<Void> removed = sandboxes.removeBox(box);
        assert removed != null;
    }
}
