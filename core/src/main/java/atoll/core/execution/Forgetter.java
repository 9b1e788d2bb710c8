package atoll.core.execution;

import atoll.core.AtollException;
import atoll.core.ExecutionId;
import atoll.core.node.Node;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executor;

/** Tells the node which executions are on record here, many at a time. What is lost here is told again by the next reconciliation. */
final class Forgetter {
    private static final int MOST_AT_ONCE = 1000;

    private final Node node;
    private final Executor background;

    private final Object lock = new Object();

    /** Those whose output the node is to keep. */
    @GuardedBy("lock")
    private List<ExecutionId> keeping = new ArrayList<>();

    @GuardedBy("lock")
    private List<ExecutionId> dropping = new ArrayList<>();

    @GuardedBy("lock")
    private boolean telling;

    Forgetter(Node node, Executor background) {
        this.node = node;
        this.background = background;
    }

    /** Its output stays readable: on the node, or here where the record has all of it. */
    void forget(ExecutionId id, ExecutionOutcome recorded) {
        boolean keep = WholeRecord.of(recorded).isEmpty();
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
            List<ExecutionId> keep;
            List<ExecutionId> drop;
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

    private static List<ExecutionId> first(List<ExecutionId> ids) {
        return List.copyOf(ids.subList(0, Math.min(ids.size(), MOST_AT_ONCE)));
    }

    private static List<ExecutionId> without(int count, List<ExecutionId> ids) {
        return new ArrayList<>(ids.subList(count, ids.size()));
    }

    private void tell(List<ExecutionId> ids, boolean keep) {
        if (ids.isEmpty()) {
            return;
        }
        try {
            node.forgetExecutions(ids, keep);
        } catch (AtollException e) {
            System.getLogger(Forgetter.class.getName())
                    .log(System.Logger.Level.DEBUG, "the node keeps executions for now: " + e.getMessage());
        }
    }
}
