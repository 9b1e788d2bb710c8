package atoll.core.pool;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Metrics;
import atoll.core.ServerStatus.PoolStatus;
import atoll.core.Settings;
import atoll.core.node.Box;
import atoll.core.node.BoxSpec;
import atoll.core.node.BoxState;
import atoll.core.node.ContextSpec;
import atoll.core.node.Image;
import atoll.core.node.Node;
import atoll.core.template.Limits;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HexFormat;
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
import org.jspecify.annotations.Nullable;

/**
 * Started boxes of one template, with the default language's kernel warm.
 *
 * <p>Whoever asks gets a ready box, or waits in line. Every start serves the line first and the stock second, whoever it was begun
 * for: so a start that is under way for the stock goes to a waiting caller, and a burst of callers begins exactly as many starts as
 * are missing. Starts are bounded over all pools. Starts for the stock wait until callers have been quiet for a moment, since they
 * would take the CPU from the very requests that emptied it.
 */
final class Pool implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(Pool.class.getName());
    private static final Duration FIRST_RETRY = Duration.ofMillis(500);
    private static final Duration LONGEST_RETRY = Duration.ofSeconds(30);

    /** A caller in line. */
    private static final class Waiter {
        private final CompletableFuture<Box> box = new CompletableFuture<>();
    }

    private final Template template;
    private final TemplateCatalog catalog;
    private final Node node;
    private final Metrics metrics;
    private final Executor background;
    private final Semaphore starts;
    private final Set<BoxId> owned;
    private final long quietNanos;
    private final long latestNanos;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();

    @GuardedBy("lock")
    private final Deque<Box> ready = new ArrayDeque<>();

    @GuardedBy("lock")
    private final Deque<Waiter> waiting = new ArrayDeque<>();

    @GuardedBy("lock")
    private int starting;

    @GuardedBy("lock")
    private long hits;

    @GuardedBy("lock")
    private final Map<String, Long> misses = new TreeMap<>();

    @GuardedBy("lock")
    private long lastTakeNanos = System.nanoTime();

    /** When the stock was last complete. */
    @GuardedBy("lock")
    private long shortSinceNanos = System.nanoTime();

    @GuardedBy("lock")
    private int failures;

    @GuardedBy("lock")
    private long retryAtNanos = System.nanoTime();

    @GuardedBy("lock")
    private @Nullable String lastFailure;

    @GuardedBy("lock")
    private boolean begun;

    @GuardedBy("lock")
    private boolean closed;

    Pool(
            Template template,
            TemplateCatalog catalog,
            Node node,
            Settings settings,
            Metrics metrics,
            Executor background,
            Semaphore starts,
            Set<BoxId> owned) {
        this.template = template;
        this.catalog = catalog;
        this.node = node;
        this.metrics = metrics;
        this.background = background;
        this.starts = starts;
        this.owned = owned;
        this.quietNanos = settings.refillQuiet().toNanos();
        this.latestNanos = settings.refillLatest().toNanos();
    }

    void start() {
        lock.lock();
        try {
            if (begun) {
                return;
            }
            begun = true;
        } finally {
            lock.unlock();
        }
        background.execute(this::keepFull);
    }

    Taken take() throws InterruptedException {
        Waiter mine = new Waiter();
        String from;
        lock.lock();
        try {
            if (closed) {
                throw shuttingDown();
            }
            lastTakeNanos = System.nanoTime();
            Box box = ready.poll();
            if (box != null) {
                hits++;
                changed.signalAll();
                return new Taken(box, "pool");
            }
            from = starting > waiting.size() ? "starting" : template.poolDepth() == 0 ? "disabled" : "empty";
            missed(from);
            waiting.add(mine);
            beginMissing();
        } finally {
            lock.unlock();
        }
        return new Taken(await(mine), from);
    }

    @GuardedBy("lock")
    private void missed(String reason) {
        misses.merge(reason, 1L, Long::sum);
    }

    /** Starts one that is none of the stock, with limits of its own. */
    Taken start(Limits limits) throws InterruptedException {
        lock.lock();
        try {
            if (closed) {
                throw shuttingDown();
            }
            missed("limits");
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
            Taken taken = new Taken(node.createBox(id, spec(limits, Map.of())), "limits");
            succeeded = true;
            return taken;
        } finally {
            starts.release();
            metrics.boxStarted(template.id(), succeeded, Duration.ofNanos(System.nanoTime() - began));
            if (!succeeded) {
                owned.remove(id);
            }
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

    boolean adopt(Box box) {
        Optional<Image> image = catalog.image(template);
        if (image.isEmpty() || !label(image.get()).equals(box.labels().get(Pools.LABEL))) {
            return false;
        }
        lock.lock();
        try {
            if (closed || box.state() != BoxState.READY || ready.size() + starting >= template.poolDepth()) {
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
            if (ready.removeIf(box -> box.id().equals(id))) {
                owned.remove(id);
                changed.signalAll();
            }
        } finally {
            lock.unlock();
        }
    }

    void keepOnly(Set<BoxId> present) {
        List<BoxId> lost = new ArrayList<>();
        lock.lock();
        try {
            ready.forEach(box -> {
                if (!present.contains(box.id())) {
                    lost.add(box.id());
                }
            });
        } finally {
            lock.unlock();
        }
        lost.forEach(this::gone);
    }

    PoolStatus status() {
        lock.lock();
        try {
            return new PoolStatus(
                    template.id(),
                    template.poolDepth(),
                    ready.size(),
                    starting,
                    hits,
                    Map.copyOf(misses),
                    Optional.ofNullable(lastFailure));
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

    /** Refills the stock for as long as the pool lives. */
    private void keepFull() {
        lock.lock();
        try {
            while (!closed) {
                long pause = nanosToRefill();
                if (pause > 0) {
                    long left = changed.awaitNanos(pause);
                    assert left <= pause;
                } else {
                    begin();
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            lock.unlock();
        }
    }

    /** How long to wait before the next start for the stock; 0 for now. */
    @GuardedBy("lock")
    private long nanosToRefill() {
        long now = System.nanoTime();
        if (ready.size() + starting - waiting.size() >= template.poolDepth()) {
            shortSinceNanos = now;
            return TimeUnit.SECONDS.toNanos(60);
        }
        if (failures > 0 && retryAtNanos - now > 0) {
            return retryAtNanos - now;
        }
        long quietLeft = lastTakeNanos + quietNanos - now;
        long latestLeft = shortSinceNanos + latestNanos - now;
        return misses.isEmpty() && hits == 0 ? 0 : Math.max(0, Math.min(quietLeft, latestLeft));
    }

    @GuardedBy("lock")
    private void beginMissing() {
        for (int missing = waiting.size() - starting; missing > 0; missing--) {
            begin();
        }
    }

    @GuardedBy("lock")
    private void begin() {
        starting++;
        background.execute(this::startOne);
    }

    private void startOne() {
        BoxId id = BoxId.random();
        owned.add(id);
        long began = System.nanoTime();
        try {
            starts.acquire();
            Box box;
            try {
                began = System.nanoTime();
                box = node.createBox(id, spec());
            } finally {
                starts.release();
            }
            metrics.boxStarted(template.id(), true, Duration.ofNanos(System.nanoTime() - began));
            started(box);
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

    private void started(Box box) {
        lock.lock();
        try {
            starting--;
            failures = 0;
            lastFailure = null;
            place(box);
        } finally {
            lock.unlock();
        }
    }

    /** Gives the box to the first in line, else to the stock. */
    @GuardedBy("lock")
    private void place(Box box) {
        Waiter first = waiting.poll();
        if (first != null) {
            // Its dependents only wake a thread: no foreign code runs here.
            first.box.complete(box);
        } else {
            ready.add(box);
        }
        changed.signalAll();
    }

    /** One failed start fails one caller, the first in line: the others still have theirs. */
    private void failed(BoxId id, AtollException e) {
        owned.remove(id);
        Waiter first = null;
        boolean log;
        lock.lock();
        try {
            starting--;
            log = !e.message().equals(lastFailure) && !closed;
            lastFailure = e.message();
            failures++;
            Duration pause = FIRST_RETRY.multipliedBy(1L << Math.min(failures - 1, 6));
            retryAtNanos = System.nanoTime() + (pause.compareTo(LONGEST_RETRY) > 0 ? LONGEST_RETRY : pause).toNanos();
            if (waiting.size() > starting) {
                first = waiting.poll();
            }
            changed.signalAll();
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

    private BoxSpec spec() {
        return spec(template.limits(), Map.of(Pools.LABEL, label(image())));
    }

    private Image image() {
        return catalog.image(template)
                .or(this::imageNow)
                .orElseThrow(() -> new AtollException(
                        ErrorCode.IMAGE_UNAVAILABLE,
                        "The image of template " + template.id() + " is not on the node.",
                        "It has not been built yet, or was removed.",
                        "`./atoll up` builds it."));
    }

    private BoxSpec spec(Limits limits, Map<String, String> labels) {
        return new BoxSpec(
                image().digest(),
                limits,
                List.of(ContextSpec.of(ContextId.random(), template.defaultLanguage())),
                labels);
    }

    /** The image may have been built since the node was last asked. */
    private Optional<Image> imageNow() {
        catalog.imagesSeen(node.images());
        return catalog.image(template);
    }

    private String label(Image image) {
        String made = image.digest() + "\n" + template.limits() + "\n" + template.defaultLanguage();
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(made.getBytes(StandardCharsets.UTF_8));
            return template.id() + "@" + HexFormat.of().formatHex(hash, 0, 8);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }

    private static AtollException shuttingDown() {
        return new AtollException(
                ErrorCode.SHUTTING_DOWN, "The server is shutting down.", "", "Try again once it is back.");
    }
}
