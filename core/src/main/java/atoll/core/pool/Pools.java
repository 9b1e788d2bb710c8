package atoll.core.pool;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.Metrics;
import atoll.core.ServerStatus.PoolStatus;
import atoll.core.Settings;
import atoll.core.node.Box;
import atoll.core.node.Node;
import atoll.core.template.Limits;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Semaphore;

/** The pools of all templates. They share one bound on starts, and one list of the boxes that are theirs. */
public final class Pools implements AutoCloseable {
    /** The label by which a restarted server finds the boxes of a pool: template and the hash of what they were made from. */
    static final String LABEL = "atoll.pool";

    private final Map<String, Pool> pools = new LinkedHashMap<>();
    /** From before a box is asked for until it has become a sandbox or is gone. */
    private final Set<BoxId> owned = ConcurrentHashMap.newKeySet();

    public Pools(TemplateCatalog catalog, Node node, Settings settings, Metrics metrics, Executor background) {
        Semaphore starts = new Semaphore(settings.poolStarts(), true);
        for (Template template : catalog.all()) {
            pools.put(template.id(), new Pool(template, catalog, node, settings, metrics, background, starts, owned));
        }
    }

    /** Starts keeping the pools full. */
    public void start() {
        pools.values().forEach(Pool::start);
    }

    /** A started box of the template, from now on the caller's: it calls {@link #handedOver} once the box has a sandbox or is gone. */
    public Taken take(String template) throws InterruptedException {
        Pool pool = pools.get(template);
        if (pool == null) {
            throw AtollException.internal("no pool for template " + template, null);
        }
        return pool.take();
    }

    /** A box of the template with limits that those in its pool can't get, started for this caller; else as {@link #take}. */
    public Taken start(String template, Limits limits) throws InterruptedException {
        Pool pool = pools.get(template);
        if (pool == null) {
            throw AtollException.internal("no pool for template " + template, null);
        }
        return pool.start(limits);
    }

    public void handedOver(BoxId box) {
        owned.remove(box);
    }

    /** Whether the box is being started, waits in a pool, or is on its way to a sandbox. */
    public boolean owns(BoxId box) {
        return owned.contains(box);
    }

    /** Takes over an unassigned box of an earlier life of the server; false if it belongs to no pool of today or is not needed. */
    public boolean adopt(Box box) {
        return pools.values().stream().anyMatch(pool -> pool.adopt(box));
    }

    /** The box has ended: it can't be handed out any more. */
    public void gone(BoxId box) {
        pools.values().forEach(pool -> pool.gone(box));
    }

    /** Drops the boxes that are not in this complete list of the node's. */
    public void keepOnly(Set<BoxId> present) {
        pools.values().forEach(pool -> pool.keepOnly(present));
    }

    public List<PoolStatus> status() {
        return pools.values().stream().map(Pool::status).toList();
    }

    @Override
    public void close() {
        pools.values().forEach(Pool::close);
    }
}
