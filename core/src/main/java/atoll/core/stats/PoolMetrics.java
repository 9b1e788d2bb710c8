package atoll.core.stats;

import atoll.core.Language;
import atoll.core.Metrics;
import atoll.core.execution.ExitReason;
import atoll.core.process.ProcessEnd;
import atoll.core.stats.Changes.Topic;
import java.time.Duration;

/** Core's metrics as they are, and besides them the history of pools, and what can't be seen in the store as a change. */
public final class PoolMetrics implements Metrics {
    private final Metrics metrics;
    private final ChangeCounter changes;
    private final PoolHistory history;

    PoolMetrics(Metrics metrics, ChangeCounter changes, PoolHistory history) {
        this.metrics = metrics;
        this.changes = changes;
        this.history = history;
    }

    PoolHistory history() {
        return history;
    }

    @Override
    public void sandboxTaken(String template, String from, Duration took) {
        history.taken(template, from, took);
        metrics.sandboxTaken(template, from, took);
        changes.changed(Topic.POOLS);
    }

    @Override
    public void sandboxEnded(String template, String reason) {
        metrics.sandboxEnded(template, reason);
    }

    @Override
    public void executionEnded(Language language, ExitReason reason, Duration took, long outputBytes) {
        metrics.executionEnded(language, reason, took, outputBytes);
    }

    @Override
    public void processStarted() {
        metrics.processStarted();
    }

    @Override
    public void processEnded(ProcessEnd.Reason reason) {
        metrics.processEnded(reason);
    }

    @Override
    public void boxStarted(String template, boolean succeeded, Duration took) {
        metrics.boxStarted(template, succeeded, took);
        changes.changed(Topic.POOLS);
    }

    @Override
    public void lifeStep(String step, boolean succeeded, Duration took) {
        metrics.lifeStep(step, succeeded, took);
    }
}
