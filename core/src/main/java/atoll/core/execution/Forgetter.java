package atoll.core.execution;

import atoll.core.AtollException;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.function.BiConsumer;

/**
 * Tells the node which executions or processes are on record here, many at a time. What is lost here is told again by the next
 * reconciliation.
 */
public final class Forgetter<T> {
    private static final int MOST_AT_ONCE = 1000;

    private final BiConsumer<List<T>, Boolean> node;
    private final Executor background;

    private final Object lock = new Object();

    /** Those whose output the node is to keep. */
    @GuardedBy("lock")
    private List<T> keeping = new ArrayList<>();

    @GuardedBy("lock")
    private List<T> dropping = new ArrayList<>();

    @GuardedBy("lock")
    private boolean telling;

    /** {@code node} takes ids, and whether their output is to be kept. */
    public Forgetter(BiConsumer<List<T>, Boolean> node, Executor background) {
        this.node = node;
        this.background = background;
    }

    /** It is on record; with {@code keep} its output stays on the node. */
    public void forget(T id, boolean keep) {
        synchronized (lock) {
            (keep ? keeping : dropping).add(id);
            if (telling) {
                return;
            }
            telling = true;
        }
        background.execute(this::tell);
    }

    private void tell() {
        while (true) {
            List<T> keep;
            List<T> drop;
            synchronized (lock) {
                keep = first(keeping);
                keeping = without(keep.size(), keeping);
                drop = first(dropping);
                dropping = without(drop.size(), dropping);
                if (keep.isEmpty() && drop.isEmpty()) {
                    telling = false;
                    return;
                }
            }
            try {
                tell(keep, true);
                tell(drop, false);
                // Those that end meanwhile go with the next call, so that a busy server does not make one for each.
                Thread.sleep(50);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return;
            }
        }
    }

    private static <T> List<T> first(List<T> ids) {
        return List.copyOf(ids.subList(0, Math.min(ids.size(), MOST_AT_ONCE)));
    }

    private static <T> List<T> without(int count, List<T> ids) {
        return new ArrayList<>(ids.subList(count, ids.size()));
    }

    private void tell(List<T> ids, boolean keep) {
        if (ids.isEmpty()) {
            return;
        }
        try {
            node.accept(ids, keep);
        } catch (AtollException e) {
            System.getLogger(Forgetter.class.getName())
                    .log(System.Logger.Level.DEBUG, "the node keeps for now what is on record: " + e.getMessage());
        }
    }
}
