package atoll.core.pool;

import atoll.core.BoxId;
import atoll.core.Metrics;
import atoll.core.ServerStatus.PoolStatus;
import atoll.core.Settings;
import atoll.core.node.Box;
import atoll.core.node.Node;
import atoll.core.node.NodeInfo;
import atoll.core.node.NodeSnapshot;
import atoll.core.template.Limits;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * The pools of all templates. They share one bound on starts, a part of the node's memory, and one list of the boxes that are theirs.
 */
public final class Pools implements AutoCloseable {
    /** The label by which a restarted server finds the boxes of a pool: template and the hash of what they were made from. */
    static final String LABEL = "atoll.pool";

    /** The label of processes that a template starts in each of its boxes; its value is the template. */
    public static final String START_LABEL = "atoll.start";

    private final Node node;
    private final LongSupplier nanos;
    private final MemoryShare memory;
    private final TemplateCatalog catalog;
    private final Pool.Shared shared;
    /** One per template, of its current version. Replaced as a whole. */
    private volatile Map<String, Pool> pools = Map.of();

    /** Of versions that are not current any more; some callers may still wait for their boxes. */
    private final Set<Pool> retired = ConcurrentHashMap.newKeySet();

    private final ReentrantLock changing = new ReentrantLock();

    @GuardedBy("changing")
    private boolean begun;

    @GuardedBy("changing")
    private boolean closed;

    /** From before a box is asked for until it has become a sandbox, was used for a restore, or is gone. */
    private final Set<BoxId> owned = ConcurrentHashMap.newKeySet();
    /** Prepared boxes that somebody was given, and from which pool. */
    private final Map<BoxId, Pool> lent = new ConcurrentHashMap<>();

    public Pools(TemplateCatalog catalog, Node node, Settings settings, Metrics metrics, Executor background) {
        this(catalog, node, settings, metrics, background, System::nanoTime);
    }

    Pools(
            TemplateCatalog catalog,
            Node node,
            Settings settings,
            Metrics metrics,
            Executor background,
            LongSupplier nanos) {
        this.node = node;
        this.nanos = nanos;
        this.memory = new MemoryShare(settings.poolGrowth().memoryPercent());
        Semaphore starts = new Semaphore(settings.poolStarts(), true);
        this.catalog = catalog;
        shared = new Pool.Shared(catalog, node, settings, metrics, background, starts, memory, owned, nanos);
        follow();
    }

    /** Starts keeping the pools full. */
    public void start() {
        changing.lock();
        try {
            begun = true;
        } finally {
            changing.unlock();
        }
        pools.values().forEach(Pool::start);
    }

    /** Makes the pools those of the templates of now: to be called when these have changed. */
    public void follow() {
        List<Pool> old = new ArrayList<>();
        changing.lock();
        try {
            if (closed) {
                return;
            }
            Map<String, Pool> next = new LinkedHashMap<>();
            for (Template template : catalog.all()) {
                Pool there = pools.get(template.id());
                boolean same = there != null
                        && there.template().version() == template.version()
                        && there.template().makesSameBoxes(template);
                next.put(template.id(), same ? there : new Pool(template, shared));
            }
            pools.forEach((id, pool) -> {
                if (next.get(id) != pool) {
                    old.add(pool);
                }
            });
            pools = Collections.unmodifiableMap(next);
            retired.addAll(old);
            if (begun) {
                next.values().forEach(Pool::start);
            }
        } finally {
            changing.unlock();
        }
        old.forEach(Pool::retire);
        pools.values().forEach(Pool::wake);
        retired.removeIf(Pool::isIdle);
    }

    /** A started box of the template, from now on the caller's: it calls {@link #handedOver} once the box has a sandbox or is gone. */
    public Taken take(Template template) throws InterruptedException {
        Pool pool = pools.get(template.id());
        if (pool == null || pool.template().version() != template.version()) {
            // Its caller decided just before a new version became current, or wants an older one.
            return start(template, template.limits());
        }
        return pool.take();
    }

    /** A box of the template with limits that those in its pool can't get, started for this caller; else as {@link #take}. */
    public Taken start(Template template, Limits limits) throws InterruptedException {
        Pool pool = pools.get(template.id());
        if (pool == null || pool.template().version() != template.version()) {
            Pool once = new Pool(template, shared);
            once.retire();
            return once.start(limits);
        }
        return pool.start(limits);
    }

    /**
     * A prepared box to resume, roll back or restore into, if there is one that fits; from now on the caller's: it passes it to one
     * call of the node and then calls {@link #handedOver}, whatever came of that call.
     */
    public Optional<BoxId> prepared(String template, Limits limits) {
        Optional<Pool> pool = Optional.ofNullable(pools.get(template));
        Optional<BoxId> taken = pool.flatMap(there -> there.prepared(limits));
        taken.ifPresent(id -> lent.put(id, pool.get()));
        return taken;
    }

    /** A sandbox of the template was made of a snapshot: no box of its pool could be used. */
    public void missedForSnapshot(String template) {
        Optional.ofNullable(pools.get(template)).ifPresent(pool -> pool.missed("snapshot"));
    }

    /** The box is a sandbox's, or is gone; a prepared one was used, or was not. */
    public void handedOver(BoxId box) {
        Pool lender = lent.remove(box);
        if (lender == null) {
            owned.remove(box);
        } else {
            lender.used(box);
        }
    }

    /** Whether the box is being started, waits in a pool, or is on its way to a sandbox. */
    public boolean owns(BoxId box) {
        return owned.contains(box);
    }

    /** Whether the snapshot is a pool's: such are looked after here, and by nobody else. */
    public static boolean owns(NodeSnapshot snapshot) {
        return snapshot.labels().containsKey(Golden.LABEL);
    }

    /** Takes over an unassigned box of an earlier life of the server; false if it belongs to no pool of today or is not needed. */
    public boolean adopt(Box box) {
        return pools.values().stream().anyMatch(pool -> pool.adopt(box));
    }

    /** The box has ended: it can't be handed out any more. */
    public void gone(BoxId box) {
        pools.values().forEach(pool -> pool.gone(box));
    }

    /**
     * Compares the pools with the node: drops boxes that are not in this complete list of the node's, finds golden snapshots, and gives
     * up what was made by another build or from another image. To be called before {@link #adopt}.
     */
    public void keepOnly(Set<BoxId> present) {
        NodeInfo info = node.info();
        memory.nodeHas(info.memoryTotalBytes());
        String build = info.engineVersion() + "\n" + info.runtimeVersion();
        long asOf = nanos.getAsLong();
        List<NodeSnapshot> golden =
                node.snapshots().stream().filter(Pools::owns).toList();
        for (NodeSnapshot snapshot : golden) {
            boolean known = pools.keySet().stream().anyMatch(template -> isOf(template, snapshot));
            if (!known) {
                node.deleteSnapshot(snapshot.id());
            }
        }
        pools.forEach((template, pool) -> pool.compare(
                build,
                present,
                golden.stream().filter(snapshot -> isOf(template, snapshot)).toList(),
                asOf));
    }

    private static boolean isOf(String template, NodeSnapshot golden) {
        return golden.labels().getOrDefault(Golden.LABEL, "").startsWith(labelPrefix(template));
    }

    static String labelPrefix(String template) {
        return template + "@";
    }

    public List<PoolStatus> status() {
        return pools.values().stream().map(Pool::status).toList();
    }

    @Override
    public void close() {
        changing.lock();
        try {
            closed = true;
        } finally {
            changing.unlock();
        }
        pools.values().forEach(Pool::close);
        retired.forEach(Pool::close);
    }
}
