package atoll.api;

import atoll.core.Caller;
import atoll.core.node.NodeInfo;
import atoll.core.sandbox.SandboxState;
import atoll.core.stats.Latency;
import atoll.core.stats.NodeStats;
import atoll.core.stats.Stats;
import atoll.core.stats.Totals;
import atoll.http.Exchange;
import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;

/** {@code /v1/stats} and {@code /v1/node}: how much is done here, and with what. */
final class StatsApi {
    private final Stats stats;

    StatsApi(Stats stats) {
        this.stats = stats;
    }

    record LatencyView(long count, Optional<Double> p50Ms, Optional<Double> p99Ms) {
        static LatencyView of(Latency latency) {
            return new LatencyView(
                    latency.count(),
                    latency.p50().map(StatsApi::millis),
                    latency.p99().map(StatsApi::millis));
        }
    }

    record TotalsView(
            long executions,
            int runningExecutions,
            int runningProcesses,
            long activeSessions,
            Map<String, Long> sandboxes,
            LatencyView coldStart) {
        static TotalsView of(Totals totals) {
            var sandboxes = new LinkedHashMap<String, Long>();
            for (SandboxState state : SandboxState.values()) {
                sandboxes.put(state.text(), totals.sandboxes().getOrDefault(state, 0L));
            }
            return new TotalsView(
                    totals.executions(),
                    totals.runningExecutions(),
                    totals.runningProcesses(),
                    totals.activeSessions(),
                    sandboxes,
                    LatencyView.of(totals.coldStart()));
        }
    }

    record RuntimeView(String name, String version, boolean available, Optional<String> problem, List<String> lacks) {
        static RuntimeView of(NodeInfo.BoxRuntime runtime) {
            return new RuntimeView(
                    runtime.name(),
                    runtime.version(),
                    runtime.available(),
                    Optional.of(runtime.problem()).filter(problem -> !problem.isEmpty()),
                    runtime.lacks());
        }
    }

    record ServerView(Instant startedAt) {}

    record EngineView(String version, Instant startedAt, String runscVersion, List<RuntimeView> runtimes) {}

    record MemoryView(long totalBytes, long availableBytes) {
        static MemoryView memory(NodeInfo info) {
            return new MemoryView(info.memoryTotalBytes(), info.memoryAvailableBytes());
        }

        static MemoryView disk(NodeInfo info) {
            return new MemoryView(info.diskTotalBytes(), info.diskAvailableBytes());
        }
    }

    record SandboxCounts(int running, int paused) {}

    record NodeView(
            boolean connected,
            Optional<String> problem,
            Optional<String> instance,
            String kernelVersion,
            Optional<Integer> cgroupVersion,
            Optional<Integer> cpus,
            OptionalDouble loadAverage,
            Optional<MemoryView> memory,
            Optional<MemoryView> disk,
            SandboxCounts sandboxes,
            Optional<Integer> boxes,
            ServerView server,
            Optional<EngineView> engine,
            List<String> warnings) {
        static NodeView of(NodeStats node) {
            Optional<NodeInfo> info = node.info();
            return new NodeView(
                    node.connected(),
                    node.problem(),
                    info.map(NodeInfo::instance),
                    node.kernelVersion(),
                    info.map(NodeInfo::cgroupVersion),
                    info.map(NodeInfo::cpus),
                    node.loadAverage(),
                    info.map(MemoryView::memory),
                    info.map(MemoryView::disk),
                    new SandboxCounts(node.runningSandboxes(), node.pausedSandboxes()),
                    info.map(NodeInfo::boxes),
                    new ServerView(node.serverStartedAt()),
                    info.map(there -> new EngineView(
                            there.engineVersion(),
                            there.startedAt(),
                            there.runtimeVersion(),
                            there.runtimes().stream().map(RuntimeView::of).toList())),
                    info.map(NodeInfo::warnings).orElse(List.of()));
        }
    }

    void totals(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, TotalsView.of(stats.totals(caller)));
    }

    void node(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, NodeView.of(stats.node(caller)));
    }

    private static double millis(Duration duration) {
        return duration.toNanos() / 1_000_000.0;
    }
}
