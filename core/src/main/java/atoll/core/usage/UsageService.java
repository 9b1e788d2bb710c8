package atoll.core.usage;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.Page;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.node.BoxUsage;
import atoll.core.node.PatientNode;
import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxService;
import atoll.core.sandbox.SandboxState;
import atoll.core.store.Store;
import atoll.core.template.Limits;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import org.jspecify.annotations.Nullable;

/** Asks the node every few seconds, once for all sandboxes, and keeps the answers. */
public final class UsageService implements Usage {
    private static final System.Logger LOG = System.getLogger(UsageService.class.getName());

    private final SandboxService sandboxes;
    private final Store store;
    private final PatientNode node;
    private final Duration period;

    private final Object lock = new Object();

    /** Of each live sandbox. */
    @GuardedBy("lock")
    private Map<SandboxId, UsageSample> newest = new HashMap<>();

    public UsageService(SandboxService sandboxes, Store store, PatientNode node, Duration period) {
        this.sandboxes = sandboxes;
        this.store = store;
        this.node = node;
        this.period = period;
    }

    /** Samples until its thread is interrupted. */
    public void run() {
        while (!Thread.currentThread().isInterrupted()) {
            try {
                Thread.sleep(period);
                sample();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            } catch (AtollException e) {
                // The node is away; that is told elsewhere.
                LOG.log(System.Logger.Level.DEBUG, "no sample of what sandboxes use: " + e.getMessage());
            } catch (RuntimeException e) {
                LOG.log(System.Logger.Level.WARNING, "no sample of what sandboxes use", e);
            }
        }
    }

    /** Takes one sample of all. */
    public void sample() {
        List<BoxUsage> seen = node.sampleUsage();
        List<UsageSample> samples = new ArrayList<>(seen.size());
        synchronized (lock) {
            Map<SandboxId, UsageSample> now = new HashMap<>();
            for (BoxUsage box : seen) {
                Optional<LiveSandbox> owner = box.sandboxId()
                        .flatMap(sandboxes::live)
                        .filter(live -> live.box().equals(box.box()));
                if (owner.isEmpty()) {
                    continue;
                }
                SandboxId id = owner.get().id();
                UsageSample before = newest.get(id);
                UsageSample sample = sample(owner.get().sandbox(), box, before);
                if (before == null || sample.at().isAfter(before.at())) {
                    samples.add(sample);
                    now.put(id, sample);
                } else {
                    now.put(id, before);
                }
            }
            newest = now;
        }
        if (!samples.isEmpty()) {
            store.saveUsageLater(samples);
        }
    }

    private static UsageSample sample(Sandbox sandbox, BoxUsage box, @Nullable UsageSample before) {
        Limits limits = box.limits().orElse(sandbox.limits());
        return new UsageSample(
                sandbox.id(),
                box.at(),
                before == null ? OptionalDouble.empty() : cpuPercent(before, box),
                box.cpu(),
                box.throttled(),
                box.memoryBytes(),
                limits.memoryBytes(),
                box.memoryPeakBytes(),
                box.diskBytes(),
                limits.diskBytes(),
                box.processes());
    }

    private static OptionalDouble cpuPercent(UsageSample before, BoxUsage box) {
        long wall = Duration.between(before.at(), box.at()).toNanos();
        long cpu = box.cpu().minus(before.cpu()).toNanos();
        // The count begins again when a sandbox gets another body.
        return wall <= 0 || cpu < 0
                ? OptionalDouble.empty()
                : OptionalDouble.of(Math.round(cpu * 10_000.0 / wall) / 100.0);
    }

    @Override
    public Page<UsageSample> samples(Caller caller, SandboxId sandbox, UsageQuery query) {
        caller.require(Scope.READ);
        return store.usage(sandboxes.get(caller, sandbox).id(), query);
    }

    @Override
    public Optional<UsageSample> current(Caller caller, SandboxId sandbox) {
        caller.require(Scope.READ);
        Sandbox owned = sandboxes.get(caller, sandbox);
        Optional<UsageSample> known = newest(sandbox);
        if (known.isPresent() || owned.state() != SandboxState.RUNNING) {
            return known;
        }
        try {
            sample();
        } catch (AtollException e) {
            if (e.code() != ErrorCode.NODE_UNAVAILABLE) {
                throw e;
            }
        }
        return newest(sandbox);
    }

    private Optional<UsageSample> newest(SandboxId sandbox) {
        synchronized (lock) {
            return Optional.ofNullable(newest.get(sandbox));
        }
    }
}
