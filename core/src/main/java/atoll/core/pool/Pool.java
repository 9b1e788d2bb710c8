package atoll.core.pool;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.Metrics;
import atoll.core.ServerStatus.PoolStatus;
import atoll.core.Settings;
import atoll.core.SnapshotId;
import atoll.core.node.Box;
import atoll.core.node.BoxSpec;
import atoll.core.node.BoxState;
import atoll.core.node.Node;
import atoll.core.node.NodeSnapshot;
import atoll.core.template.Limits;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * Started boxes of one template, with the default language's kernel warm.
 *
 * <p>Whoever asks gets a ready box, or waits in line. Every start serves the line first and the stock second, whoever it was begun
 * for: so a start that is under way for the stock goes to a waiting caller, and a burst of callers begins exactly as many starts as
 * are missing. Starts are bounded over all pools. Starts for the stock wait until callers have been quiet for a moment, since they
 * would take the CPU from the very requests that emptied it.
 *
 * <p>Beneath the stock lie a golden snapshot, which boxes are restored from, and a few prepared boxes to restore into. Those save a
 * waiting caller most of a start. A start for the stock makes do without a prepared one: making a box first and restoring into it later
 * takes as much CPU as doing both at once. Without a golden snapshot the first start for the stock makes one of its box, and the others
 * wait for it.
 *
 * <p>The stock is as deep as configured, deeper where as many boxes were asked for at once in the last minutes, and shrinks by one
 * box at a time when that is past. One thread per pool does what is to be done next and sleeps when there is nothing.
 */
final class Pool implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(Pool.class.getName());
    private static final Duration FIRST_RETRY = Duration.ofMillis(500);
    private static final Duration LONGEST_RETRY = Duration.ofSeconds(30);
    /** Between two boxes that are given up since they are not needed any more. */
    private static final long SHRINK_NANOS = TimeUnit.SECONDS.toNanos(10);
    /** How soon it is looked again whether a burst is forgotten, or memory has become free. */
    private static final long LOOK_NANOS = TimeUnit.SECONDS.toNanos(10);

    private static final long FOREVER = Long.MAX_VALUE;

    /** What all pools share. */
    record Shared(
            TemplateCatalog catalog,
            Node node,
            Settings settings,
            Metrics metrics,
            Executor background,
            Semaphore starts,
            MemoryShare memory,
            Set<BoxId> owned,
            LongSupplier nanos) {}

    /** A caller in line. */
    private static final class Waiter {
        private final CompletableFuture<Box> box = new CompletableFuture<>();
    }

    private final Template template;
    private final Recipe recipe;
    private final Node node;
    private final Metrics metrics;
    private final Executor background;
    private final Semaphore starts;
    private final MemoryShare.Part memory;
    private final Set<BoxId> owned;
    private final LongSupplier nanos;
    private final long quietNanos;
    private final long latestNanos;
    private final int maxDepth;
    private final int maxPrepared;
    private final Golden golden;
    private final Starter starter;
    private final MemoryShare shares;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();

    @GuardedBy("lock")
    private final Deque<Box> ready = new ArrayDeque<>();

    @GuardedBy("lock")
    private final Deque<Waiter> waiting = new ArrayDeque<>();

    @GuardedBy("lock")
    private int starting;

    @GuardedBy("lock")
    private final Deque<Box> prepared = new ArrayDeque<>();

    @GuardedBy("lock")
    private int preparing;

    /** Whether the runtime can restore anything into a box that was prepared, as far as is known. */
    @GuardedBy("lock")
    private boolean preparable = true;

    @GuardedBy("lock")
    private long hits;

    @GuardedBy("lock")
    private final Map<String, Long> misses = new TreeMap<>();

    @GuardedBy("lock")
    private final Map<String, Long> startsByKind = new TreeMap<>();

    @GuardedBy("lock")
    private final Demand demand;

    @GuardedBy("lock")
    private final Demand preparedDemand;

    @GuardedBy("lock")
    private long lastTakeNanos;

    /** When the stock was last complete. */
    @GuardedBy("lock")
    private long shortSinceNanos;

    /** When a box was last given up for want of demand. */
    @GuardedBy("lock")
    private long shrunkNanos;

    /** Whether there is less than the demand asks for, since memory does not allow more. */
    @GuardedBy("lock")
    private boolean bounded;

    @GuardedBy("lock")
    private final Backoff startRetry = new Backoff(FIRST_RETRY, LONGEST_RETRY);

    @GuardedBy("lock")
    private final Backoff prepareRetry = new Backoff(FIRST_RETRY, Duration.ofMinutes(5));

    @GuardedBy("lock")
    private Optional<String> lastFailure = Optional.empty();

    @GuardedBy("lock")
    private boolean begun;

    @GuardedBy("lock")
    private boolean closed;

    /** Another version of the template has a pool of its own: this one serves who waits, and keeps nothing. */
    @GuardedBy("lock")
    private boolean retired;

    Pool(Template template, Shared shared) {
        this.template = template;
        this.recipe = new Recipe(template, shared.catalog(), shared.node());
        this.node = shared.node();
        this.metrics = shared.metrics();
        this.background = shared.background();
        this.starts = shared.starts();
        this.owned = shared.owned();
        this.nanos = shared.nanos();
        this.quietNanos = shared.settings().refillQuiet().toNanos();
        this.latestNanos = shared.settings().refillLatest().toNanos();
        this.starter = new Starter(node);
        this.shares = shared.memory();
        Settings.PoolGrowth growth = shared.settings().poolGrowth();
        int depth = template.poolDepth();
        this.maxDepth = depth == 0 ? 0 : Math.max(depth, template.poolMaxDepth().orElse(growth.maxDepth()));
        this.maxPrepared = depth == 0 ? 0 : growth.maxPrepared();
        this.memory =
                shared.memory().part(depth * MemoryShare.STARTED + Math.min(1, maxPrepared) * MemoryShare.PREPARED);
        this.golden = new Golden(template.id(), node, background, nanos);
        long now = nanos.getAsLong();
        this.demand = new Demand(now);
        this.preparedDemand = new Demand(now);
        this.lastTakeNanos = now;
        this.shortSinceNanos = now;
        this.shrunkNanos = now;
    }

    void start() {
        lock.lock();
        try {
            if (begun) {
                changed.signalAll();
                return;
            }
            begun = true;
        } finally {
            lock.unlock();
        }
        background.execute(this::keepFull);
    }

    // What callers ask for.

    Taken take() throws InterruptedException {
        Waiter mine = new Waiter();
        String from;
        lock.lock();
        try {
            requireOpen();
            lastTakeNanos = nanos.getAsLong();
            demand.note(lastTakeNanos);
            Box box = ready.poll();
            if (box != null) {
                hits++;
                altered();
                return new Taken(box, "pool");
            }
            from = starting > waiting.size() ? "starting" : template.poolDepth() == 0 ? "disabled" : "empty";
            count(misses, from);
            waiting.add(mine);
            for (int missing = waiting.size() - starting; missing > 0; missing--) {
                begin(Optional.empty());
            }
        } finally {
            lock.unlock();
        }
        return new Taken(await(mine), from);
    }

    /** Starts one that is none of the stock, with limits of its own. */
    Taken start(Limits limits) throws InterruptedException {
        lock.lock();
        try {
            requireOpen();
            count(misses, "limits");
        } finally {
            lock.unlock();
        }
        BoxId id = BoxId.random();
        owned.add(id);
        long began = System.nanoTime();
        boolean succeeded = false;
        starts.acquire();
        try {
            began = System.nanoTime();
            // Without the pool's label: a server that finds it after a crash removes it.
            Taken taken = new Taken(create(id, recipe.unlabelled(limits)), "limits");
            succeeded = true;
            counted("started");
            return taken;
        } finally {
            starts.release();
            metrics.boxStarted(template.id(), succeeded, Duration.ofNanos(System.nanoTime() - began));
            if (!succeeded) {
                owned.remove(id);
            }
        }
    }

    /** A prepared box that such limits fit into, from now on the caller's. */
    Optional<BoxId> prepared(Limits limits) {
        lock.lock();
        try {
            if (closed || retired || maxPrepared == 0 || !limits.changeableTo(template.limits())) {
                return Optional.empty();
            }
            return pollPrepared();
        } finally {
            lock.unlock();
        }
    }

    /** No box of this pool was of use to somebody who wanted one of its template. */
    void missed(String reason) {
        lock.lock();
        try {
            count(misses, reason);
            lastTakeNanos = nanos.getAsLong();
        } finally {
            lock.unlock();
        }
    }

    @GuardedBy("lock")
    private Optional<BoxId> pollPrepared() {
        long now = nanos.getAsLong();
        lastTakeNanos = now;
        preparedDemand.note(now);
        Optional<BoxId> taken = Optional.ofNullable(prepared.poll()).map(Box::id);
        altered();
        return taken;
    }

    @GuardedBy("lock")
    private void requireOpen() {
        if (closed) {
            throw shuttingDown();
        }
    }

    private void requireOpenNow() {
        lock.lock();
        try {
            requireOpen();
        } finally {
            lock.unlock();
        }
    }

    private Box await(Waiter mine) throws InterruptedException {
        try {
            return mine.box.get();
        } catch (InterruptedException e) {
            abandon(mine);
            throw e;
        } catch (ExecutionException e) {
            if (e.getCause() instanceof AtollException known) {
                throw known;
            }
            throw AtollException.internal("a box of template " + template.id() + " did not start", e.getCause());
        }
    }

    /** A caller left the line; a box that it was given in this very moment goes to the next one. */
    private void abandon(Waiter mine) {
        lock.lock();
        try {
            if (!waiting.remove(mine) && mine.box.isDone() && !mine.box.isCompletedExceptionally()) {
                place(mine.box.resultNow());
            }
        } finally {
            lock.unlock();
        }
    }

    /** A box in which runs what the template starts; a failed start leaves none behind. */
    private Box create(BoxId id, BoxSpec spec) throws InterruptedException {
        Box box = node.createBox(id, spec);
        boolean ready = false;
        try {
            starter.start(id, template);
            ready = true;
            return box;
        } finally {
            if (!ready) {
                remove(id);
            }
        }
    }

    Template template() {
        return template;
    }

    /** Gives up its stock, and from now on keeps none. */
    void retire() {
        lock.lock();
        try {
            retired = true;
            List<Box> stock = new ArrayList<>(ready);
            stock.addAll(prepared);
            stock.forEach(this::dispose);
            altered();
        } finally {
            lock.unlock();
        }
        golden.giveUp();
        shares.leave(memory);
    }

    /** Whether nobody waits for it any more. */
    boolean isIdle() {
        lock.lock();
        try {
            return waiting.isEmpty() && starting == 0;
        } finally {
            lock.unlock();
        }
    }

    /** Looks whether there is something to be done: the image of its template may have come. */
    void wake() {
        lock.lock();
        try {
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    // What the node tells.

    /**
     * Takes note of what the node is and has: boxes and snapshots that are not there any more, or were made from something else than
     * what is made now, are given up.
     *
     * @param snapshots those of this template's pool
     * @param asOf when they were read, by the clock that the pool was given
     */
    void compare(String nodeBuild, Set<BoxId> present, List<NodeSnapshot> snapshots, long asOf) {
        recipe.nodeIs(nodeBuild);
        Optional<String> label = recipe.labelIfKnown();
        lock.lock();
        try {
            List<Box> stock = new ArrayList<>(ready);
            stock.addAll(prepared);
            for (Box box : stock) {
                // One that was placed since the list was read is not in it and there all the same: it goes as well.
                if (!present.contains(box.id())
                        || (label.isPresent() && !label.get().equals(Recipe.labelOf(box)))) {
                    dispose(box);
                }
            }
        } finally {
            lock.unlock();
        }
        golden.found(snapshots, template.poolDepth() == 0 ? "" : label.orElse(""), asOf);
    }

    boolean adopt(Box box) {
        if (!recipe.labelIfKnown().equals(Optional.of(Recipe.labelOf(box)))) {
            return false;
        }
        lock.lock();
        try {
            if (closed || retired) {
                return false;
            }
            if (box.state() == BoxState.PREPARED && prepared.size() + preparing < maxPrepared) {
                owned.add(box.id());
                prepared.add(box);
                altered();
                return true;
            }
            if (box.state() != BoxState.READY || ready.size() + starting >= maxDepth) {
                return false;
            }
            owned.add(box.id());
            place(box);
            return true;
        } finally {
            lock.unlock();
        }
    }

    void gone(BoxId id) {
        lock.lock();
        try {
            if (ready.removeIf(box -> box.id().equals(id))
                    || prepared.removeIf(box -> box.id().equals(id))) {
                owned.remove(id);
                altered();
            }
        } finally {
            lock.unlock();
        }
    }

    PoolStatus status() {
        lock.lock();
        try {
            long now = nanos.getAsLong();
            return new PoolStatus(
                    template.id(),
                    bounded ? Math.min(target(now), ready.size() + starting) : target(now),
                    ready.size(),
                    starting,
                    prepared.size(),
                    golden.present().map(snapshot -> new PoolStatus.Golden(snapshot.id(), snapshot.sizeBytes())),
                    hits,
                    misses,
                    startsByKind,
                    golden.failuresByReason(),
                    memory.held(),
                    lastFailure);
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void close() {
        List<Waiter> left;
        lock.lock();
        try {
            closed = true;
            left = List.copyOf(waiting);
            waiting.clear();
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        left.forEach(waiter -> waiter.box.completeExceptionally(shuttingDown()));
    }

    // What the pool does by itself.

    /** Looks after the stock for as long as the pool lives. */
    private void keepFull() {
        lock.lock();
        try {
            while (!closed && !retired) {
                long pause = next();
                if (pause == FOREVER) {
                    changed.await();
                } else if (pause > 0) {
                    long left = changed.awaitNanos(pause);
                    assert left <= pause;
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            lock.unlock();
        }
    }

    /** Begins what is to be done now, if anything is; returns how long it has time to look again. */
    @GuardedBy("lock")
    private long next() {
        if (recipe.labelIfKnown().isEmpty()) {
            // Its image is built when it is first used.
            bounded = false;
            return FOREVER;
        }
        long now = nanos.getAsLong();
        int target = target(now);
        bounded = false;
        if (ready.size() + starting - waiting.size() < target) {
            return refill(now);
        }
        shortSinceNanos = now;
        long pause = target > template.poolDepth() || preparedTarget(now) > 1 ? LOOK_NANOS : FOREVER;
        pause = Math.min(pause, shrink(now, target));
        pause = Math.min(pause, startForGolden(now));
        return Math.min(pause, prepareMissing(now));
    }

    /** How many boxes the stock is to hold. */
    @GuardedBy("lock")
    private int target(long now) {
        int least = template.poolDepth();
        return least == 0 || retired || recipe.labelIfKnown().isEmpty()
                ? 0
                : Math.clamp(demand.peak(now), least, maxDepth);
    }

    /** One is kept at least: whoever misses first is helped, and shows how many are of use. */
    @GuardedBy("lock")
    private int preparedTarget(long now) {
        return maxPrepared == 0 || !preparable ? 0 : Math.clamp(preparedDemand.peak(now), 1, maxPrepared);
    }

    @GuardedBy("lock")
    private long refill(long now) {
        boolean unused = misses.isEmpty() && hits == 0;
        long latest = shortSinceNanos + latestNanos - now;
        long pause = Math.max(startRetry.left(now), unused ? 0 : Math.min(quiet(now), latest));
        if (pause > 0) {
            return pause;
        }
        if (!memory.allows(MemoryShare.STARTED)) {
            bounded = true;
            return LOOK_NANOS;
        }
        Optional<SnapshotId> model = golden.begin(now);
        if (model.isEmpty() && golden.isBeingMade()) {
            // With it the others take a fraction of the CPU that they take now.
            return FOREVER;
        }
        begin(model);
        return 0;
    }

    /** How long it takes to a quiet moment if nobody comes in between. */
    @GuardedBy("lock")
    private long quiet(long now) {
        return Math.max(0, lastTakeNanos + quietNanos - now);
    }

    /** Gives up one box that is not needed. */
    @GuardedBy("lock")
    private long shrink(long now, int target) {
        boolean deep = ready.size() > target;
        boolean many = prepared.size() > preparedTarget(now);
        if (!deep && !many) {
            return FOREVER;
        }
        long pause = shrunkNanos + SHRINK_NANOS - now;
        if (pause > 0) {
            return pause;
        }
        shrunkNanos = now;
        Box surplus = deep ? ready.getFirst() : prepared.getFirst();
        dispose(surplus);
        return 0;
    }

    /** Without a golden snapshot one box more is started, for it to be made of. */
    @GuardedBy("lock")
    private long startForGolden(long now) {
        Optional<Long> due = maxDepth == 0 || starting > 0 ? Optional.empty() : golden.nanosToMake(now);
        if (due.isEmpty()) {
            return FOREVER;
        }
        long pause = Math.max(due.get(), quiet(now));
        if (pause <= 0) {
            begin(golden.begin(now));
        }
        return pause;
    }

    @GuardedBy("lock")
    private long prepareMissing(long now) {
        if (prepared.size() + preparing >= preparedTarget(now)) {
            return FOREVER;
        }
        long pause = Math.max(prepareRetry.left(now), quiet(now));
        if (pause > 0) {
            return pause;
        }
        if (!memory.allows(MemoryShare.PREPARED)) {
            return LOOK_NANOS;
        }
        preparing++;
        altered();
        background.execute(this::prepareOne);
        return 0;
    }

    private void prepareOne() {
        BoxId id = BoxId.random();
        owned.add(id);
        Optional<Box> made = Optional.empty();
        try {
            starts.acquire();
            try {
                requireOpenNow();
                made = Optional.of(node.prepareBox(id, recipe.prepared()));
            } finally {
                starts.release();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (AtollException e) {
            if (e.code() == ErrorCode.UNSUPPORTED_BY_RUNTIME) {
                withoutPrepared();
            }
            LOG.log(
                    System.Logger.Level.INFO,
                    "pool " + template.id() + ": a box could not be prepared: " + e.message());
        } finally {
            prepared(id, made);
        }
    }

    private void withoutPrepared() {
        lock.lock();
        try {
            preparable = false;
        } finally {
            lock.unlock();
        }
    }

    private void prepared(BoxId id, Optional<Box> made) {
        lock.lock();
        try {
            preparing--;
            if (made.isPresent() && retired) {
                remove(id);
            } else if (made.isPresent()) {
                prepareRetry.succeeded();
                prepared.add(made.get());
            } else {
                owned.remove(id);
                prepareRetry.failed(nanos.getAsLong());
            }
            altered();
        } finally {
            lock.unlock();
        }
    }

    /** Begins one more start; {@code model}: the golden snapshot to make of it. */
    @GuardedBy("lock")
    private void begin(Optional<SnapshotId> model) {
        starting++;
        altered();
        background.execute(() -> startOne(model));
    }

    private void startOne(Optional<SnapshotId> model) {
        BoxId id = BoxId.random();
        owned.add(id);
        long began = System.nanoTime();
        try {
            starts.acquire();
            Box box;
            boolean restored;
            try {
                requireOpenNow();
                began = System.nanoTime();
                BoxSpec spec = recipe.own();
                Optional<Box> fromGolden = restore(id, Recipe.labelOf(spec));
                restored = fromGolden.isPresent();
                box = restored ? fromGolden.get() : create(id, spec);
                metrics.boxStarted(template.id(), true, Duration.ofNanos(System.nanoTime() - began));
                if (model.isPresent() && !restored) {
                    makeGolden(model.get(), box);
                }
            } finally {
                model.ifPresent(golden::leave);
                starts.release();
            }
            started(box, restored);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            failed(id, shuttingDown());
        } catch (AtollException e) {
            metrics.boxStarted(template.id(), false, Duration.ofNanos(System.nanoTime() - began));
            failed(id, e);
        } catch (RuntimeException e) {
            failed(id, AtollException.internal("starting a box of template " + template.id() + " failed", e));
        }
    }

    /** Nobody waits for a snapshot: a caller in line gets the box as it is. */
    private void makeGolden(SnapshotId id, Box model) {
        if (someoneWaits()) {
            return;
        }
        try {
            golden.make(id, model.id(), Recipe.labelOf(model));
        } catch (AtollException e) {
            if (e.code() == ErrorCode.NOT_FOUND || e.code() == ErrorCode.CONFLICT) {
                // It has ended.
                remove(model.id());
                throw e;
            }
            // The box is as it was.
            LOG.log(System.Logger.Level.DEBUG, "pool " + template.id() + " goes on without: " + e.message());
        }
    }

    private boolean someoneWaits() {
        lock.lock();
        try {
            return !waiting.isEmpty();
        } finally {
            lock.unlock();
        }
    }

    /** A box from the golden snapshot; empty if there is none, or it can't be restored. */
    private Optional<Box> restore(BoxId id, String label) {
        Optional<NodeSnapshot> from = golden.of(label);
        if (from.isEmpty()) {
            return Optional.empty();
        }
        Optional<BoxId> into = preparedForWaiter();
        try {
            Box box = node.restoreBox(id, Recipe.copy(from.get(), into, label));
            golden.restored();
            return Optional.of(box);
        } catch (AtollException e) {
            if (!Golden.isToBlame(e)) {
                throw e;
            }
            golden.failed(from.get().id(), e);
            return Optional.empty();
        } finally {
            into.ifPresent(this::used);
        }
    }

    private Optional<BoxId> preparedForWaiter() {
        lock.lock();
        try {
            return waiting.isEmpty() || maxPrepared == 0 ? Optional.empty() : pollPrepared();
        } finally {
            lock.unlock();
        }
    }

    /** A prepared box was offered to the node: if it did without, nobody needs it any more. */
    void used(BoxId id) {
        background.execute(() -> {
            try {
                if (node.box(id).map(Box::state).equals(Optional.of(BoxState.PREPARED))) {
                    node.deleteBox(id);
                }
            } catch (AtollException e) {
                LOG.log(System.Logger.Level.INFO, "prepared box " + id + " is left to the next start: " + e.message());
            } finally {
                owned.remove(id);
            }
        });
    }

    private void started(Box box, boolean restored) {
        Optional<String> label = recipe.labelIfKnown();
        lock.lock();
        try {
            starting--;
            startRetry.succeeded();
            lastFailure = Optional.empty();
            count(startsByKind, restored ? "restored" : "started");
            if (waiting.isEmpty() && label.isPresent() && !label.get().equals(Recipe.labelOf(box))) {
                // The image has changed while it started.
                dispose(box);
                return;
            }
            place(box);
        } finally {
            lock.unlock();
        }
    }

    private void counted(String kind) {
        lock.lock();
        try {
            count(startsByKind, kind);
        } finally {
            lock.unlock();
        }
    }

    private static void count(Map<String, Long> counts, String reason) {
        counts.merge(reason, 1L, Long::sum);
    }

    /** Gives the box to the first in line, else to the stock. */
    @GuardedBy("lock")
    private void place(Box box) {
        Waiter first = waiting.poll();
        if (first != null) {
            // Its dependents only wake a thread: no foreign code runs here.
            first.box.complete(box);
        } else if (retired) {
            dispose(box);
        } else {
            ready.add(box);
        }
        altered();
    }

    /** Removes a box that nobody is to get. */
    @GuardedBy("lock")
    private void dispose(Box box) {
        boolean known = ready.remove(box) || prepared.remove(box);
        LOG.log(System.Logger.Level.DEBUG, "pool " + template.id() + ": " + box.id() + " goes, in stock: " + known);
        altered();
        remove(box.id());
    }

    private void remove(BoxId id) {
        background.execute(() -> {
            try {
                node.deleteBox(id);
            } catch (AtollException e) {
                LOG.log(System.Logger.Level.INFO, "box " + id + " is left to the next start: " + e.message());
            } finally {
                owned.remove(id);
            }
        });
    }

    /** One failed start fails one caller, the first in line: the others still have theirs. */
    private void failed(BoxId id, AtollException e) {
        owned.remove(id);
        Waiter first = null;
        boolean log;
        lock.lock();
        try {
            starting--;
            log = !lastFailure.equals(Optional.of(e.message())) && !closed;
            lastFailure = Optional.of(e.message());
            startRetry.failed(nanos.getAsLong());
            if (waiting.size() > starting) {
                first = waiting.poll();
            }
            altered();
        } finally {
            lock.unlock();
        }
        if (log) {
            LOG.log(System.Logger.Level.WARNING, "pool " + template.id() + ": a box did not start: " + e.message());
        }
        if (first != null) {
            first.box.completeExceptionally(e);
        }
    }

    /** To be called after each change of what it holds. */
    @GuardedBy("lock")
    private void altered() {
        // What starts for a caller in line will be a sandbox, and no part of the pool.
        long started = (long) ready.size() + Math.max(0, starting - waiting.size());
        memory.holds(started * MemoryShare.STARTED + (prepared.size() + preparing) * MemoryShare.PREPARED);
        changed.signalAll();
    }

    private static AtollException shuttingDown() {
        return new AtollException(
                ErrorCode.SHUTTING_DOWN, "The server is shutting down.", "", "Try again once it is back.");
    }
}
