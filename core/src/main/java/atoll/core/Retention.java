package atoll.core;

import atoll.core.node.Node;
import atoll.core.store.Store;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.List;

/** Removes what is past its time: records from the store, and their output from the node. A sweep, so nothing is missed by a restart. */
final class Retention {
    private static final System.Logger LOG = System.getLogger(Retention.class.getName());
    private static final Duration PERIOD = Duration.ofMinutes(10);
    private static final int AT_ONCE = 500;

    private final Store store;
    private final Node node;
    private final Settings settings;
    private final InstantSource clock;
    private final Runnable templates;

    /** @param templates sweeps those */
    Retention(Store store, Node node, Settings settings, InstantSource clock, Runnable templates) {
        this.templates = templates;
        this.store = store;
        this.node = node;
        this.settings = settings;
        this.clock = clock;
    }

    /** Sweeps until its thread is interrupted. */
    void run() {
        while (!Thread.currentThread().isInterrupted()) {
            try {
                Thread.sleep(PERIOD);
                sweep();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            } catch (RuntimeException e) {
                LOG.log(System.Logger.Level.WARNING, "retention could not finish; it goes on in " + PERIOD, e);
            }
        }
    }

    void sweep() {
        Instant oldest = clock.instant().minus(settings.retention());
        List<ExecutionId> removed;
        do {
            removed = store.removeExecutions(oldest, settings.maxExecutions(), AT_ONCE);
            if (!removed.isEmpty()) {
                node.forgetExecutions(removed, false);
            }
        } while (removed.size() == AT_ONCE);
        List<ProcessId> ended;
        do {
            ended = store.removeProcesses(oldest, settings.maxExecutions(), AT_ONCE);
            if (!ended.isEmpty()) {
                node.processes().forget(ended, false);
            }
        } while (ended.size() == AT_ONCE);
        int samples = store.removeUsage(clock.instant().minus(settings.usageRetention()));
        LOG.log(System.Logger.Level.DEBUG, samples + " samples of use were past their time");
        int gone;
        do {
            gone = store.removeEnded(oldest, AT_ONCE);
        } while (gone >= AT_ONCE);
        templates.run();
    }
}
