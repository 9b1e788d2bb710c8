package atoll.core.stats;

import atoll.core.Caller;
import atoll.core.Metrics;
import atoll.core.ProjectId;
import atoll.core.Scope;
import atoll.core.ServerStatus;
import atoll.core.ServerStatus.PoolStatus;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.store.Store;
import java.lang.management.ManagementFactory;
import java.time.Instant;
import java.time.InstantSource;
import java.util.Collection;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.function.Supplier;
import java.util.function.ToLongFunction;

/** Puts together what others count. */
public final class StatsService implements Stats {
    private static final long PERIOD_MILLIS = 30_000;

    private final Store store;
    private final ChangeCounter changes;
    private final PoolHistory history;
    private final Supplier<ServerStatus> status;
    private final Supplier<? extends Collection<Sandbox>> live;
    private final ToLongFunction<ProjectId> executions;
    private final Instant startedAt;

    /**
     * @param live the sandboxes of all projects that have not ended
     * @param executions how many were ever begun in a project
     */
    public StatsService(
            Store store,
            ChangeCounter changes,
            PoolMetrics measured,
            Supplier<ServerStatus> status,
            Supplier<? extends Collection<Sandbox>> live,
            ToLongFunction<ProjectId> executions,
            InstantSource clock) {
        this.store = store;
        this.changes = changes;
        this.history = measured.history();
        this.status = status;
        this.live = live;
        this.executions = executions;
        this.startedAt = clock.instant();
    }

    /** Core's metrics, of which this keeps its part. */
    public static PoolMetrics measuring(Metrics metrics, ChangeCounter changes, InstantSource clock) {
        return new PoolMetrics(metrics, changes, new PoolHistory(clock));
    }

    @Override
    public Totals totals(Caller caller) {
        caller.require(Scope.READ);
        Map<SandboxState, Long> states = new EnumMap<>(SandboxState.class);
        for (SandboxState state : SandboxState.values()) {
            states.put(state, 0L);
        }
        for (Sandbox sandbox : live.get()) {
            if (sandbox.project().equals(caller.project()) && sandbox.state() != SandboxState.ENDED) {
                states.merge(sandbox.state(), 1L, Long::sum);
            }
        }
        long alive = states.values().stream().mapToLong(Long::longValue).sum();
        long active = alive - states.getOrDefault(SandboxState.PAUSED, 0L);
        states.put(SandboxState.ENDED, store.endedSandboxes(caller.project()));
        ServerStatus now = status.get();
        return new Totals(
                executions.applyAsLong(caller.project()),
                now.runningExecutions(),
                now.runningProcesses(),
                active,
                states,
                history.latency());
    }

    @Override
    public NodeStats node(Caller caller) {
        caller.require(Scope.READ);
        ServerStatus now = status.get();
        double load = ManagementFactory.getOperatingSystemMXBean().getSystemLoadAverage();
        return new NodeStats(
                now.nodeConnected(),
                now.problem(),
                now.node(),
                System.getProperty("os.version", ""),
                load < 0 ? OptionalDouble.empty() : OptionalDouble.of(load),
                now.liveSandboxes() - now.pausedSandboxes(),
                now.pausedSandboxes(),
                startedAt);
    }

    @Override
    public List<PoolStats> pools(Caller caller, int minutes) {
        caller.require(Scope.READ);
        List<PoolStatus> pools = look();
        return pools.stream()
                .map(pool -> new PoolStats(
                        pool,
                        PoolStats.hitRate(pool),
                        history.latency(pool.template()),
                        history.minutes(pool.template(), Math.min(minutes, MOST_MINUTES))))
                .toList();
    }

    private List<PoolStatus> look() {
        List<PoolStatus> pools = status.get().pools();
        pools.forEach(pool -> history.seen(pool.template(), pool.target(), pool.ready()));
        return pools;
    }

    @Override
    public Changes changes() {
        return changes;
    }

    /** Looks at the pools now and then, until its thread is interrupted. */
    public void run() {
        try {
            while (true) {
                List<PoolStatus> seen = look();
                assert seen != null;
                Thread.sleep(PERIOD_MILLIS);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
