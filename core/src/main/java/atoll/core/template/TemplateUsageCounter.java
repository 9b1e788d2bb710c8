package atoll.core.template;

import atoll.core.AtollException;
import atoll.core.ProjectId;
import atoll.core.store.Store;
import java.time.Instant;
import java.time.InstantSource;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;

/**
 * Counts what templates are used for. Counting costs no write: what was counted is put on record together, every few seconds and at the end;
 * a server that is killed forgets those seconds.
 */
public final class TemplateUsageCounter {
    private static final System.Logger LOG = System.getLogger(TemplateUsageCounter.class.getName());

    private static final long PERIOD_MILLIS = 2000;

    private record Key(ProjectId project, String template) {}

    private record Count(long executions, Instant last) {
        Count plus(Count more) {
            return new Count(executions + more.executions, more.last);
        }
    }

    private final Store store;
    private final InstantSource clock;
    private final Map<Key, Count> pending = new ConcurrentHashMap<>();
    private final Map<ProjectId, LongAdder> totals = new ConcurrentHashMap<>();

    TemplateUsageCounter(Store store, InstantSource clock) {
        this.store = store;
        this.clock = clock;
    }

    /** Goes on from what is on record. */
    void load() {
        store.executionTotals().forEach((project, executions) -> total(project).add(executions));
    }

    private LongAdder total(ProjectId project) {
        return totals.computeIfAbsent(project, _ -> new LongAdder());
    }

    /** How many executions were ever begun, also in sandboxes of templates that are gone. */
    public long executions(ProjectId project) {
        return total(project).sum();
    }

    /** An execution was begun in a sandbox of it. */
    public void executed(ProjectId project, String template) {
        total(project).increment();
        count(project, template, 1);
    }

    /** A sandbox was made of it. */
    public void used(ProjectId project, String template) {
        count(project, template, 0);
    }

    private void count(ProjectId project, String template, long executions) {
        pending.merge(new Key(project, template), new Count(executions, clock.instant()), Count::plus);
    }

    /** Writes until its thread is interrupted. */
    void run() {
        try {
            while (true) {
                Thread.sleep(PERIOD_MILLIS);
                flush();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    void flush() {
        for (Key key : List.copyOf(pending.keySet())) {
            Count count = pending.remove(key);
            if (count == null) {
                continue;
            }
            try {
                store.addTemplateUsageLater(key.project(), key.template(), count.executions(), count.last());
            } catch (AtollException e) {
                // Kept for the next time, and no reason to end anything.
                pending.merge(key, count, Count::plus);
                LOG.log(
                        System.Logger.Level.INFO,
                        "what templates were used could not be put on record: " + e.message());
                return;
            }
        }
    }

    Map<String, TemplateUsage> of(ProjectId project) {
        Map<String, TemplateUsage> usage = new HashMap<>(store.templateUsage(project));
        pending.forEach((key, count) -> {
            if (key.project().equals(project)) {
                usage.put(
                        key.template(),
                        usage.getOrDefault(key.template(), TemplateUsage.NONE).plus(count.executions(), count.last()));
            }
        });
        return usage;
    }
}
