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

    @GuardedBy("lock")
    private List<ExecutionId> pending = new ArrayList<>();

    @GuardedBy("lock")
    private boolean telling;

    Forgetter(Node node, Executor background) {
        this.node = node;
        this.background = background;
    }

    void forget(ExecutionId id) {
        synchronized (lock) {
            pending.add(id);
            if (telling) {
                return;
            }
            telling = true;
        }
        background.execute(this::tell);
    }

    private void tell() {
        while (true) {
            List<ExecutionId> ids;
            synchronized (lock) {
                if (pending.isEmpty()) {
                    telling = false;
                    return;
                }
                int count = Math.min(pending.size(), MOST_AT_ONCE);
                ids = List.copyOf(pending.subList(0, count));
                pending = new ArrayList<>(pending.subList(count, pending.size()));
            }
            try {
                node.forgetExecutions(ids, true);
                // Those that end meanwhile go with the next call, so that a busy server does not make one for each.
                Thread.sleep(50);
            } catch (AtollException e) {
                System.getLogger(Forgetter.class.getName())
                        .log(System.Logger.Level.DEBUG, "the node keeps executions for now: " + e.getMessage());
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return;
            }
        }
    }
}
