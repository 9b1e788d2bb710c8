package atoll.ui;

import atoll.core.Atoll;
import atoll.core.node.NodeInfo;
import atoll.core.stats.NodeStats;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** The machine that sandboxes run on: what it has, what is left of it, and what runs there. */
public final class NodePage implements Page {
    private static final String LIVE = "/ui/live/node";

    private final Atoll atoll;

    NodePage(Atoll atoll) {
        this.atoll = atoll;
    }

    /** So many of so many, as parts of a thousand and in words. */
    public record Gauge(String title, long thousandths, String used, String of) {}

    /** A way of isolation. */
    public record Driver(String name, String version, boolean available, String problem, String lacks) {}

    /**
     * The node.
     *
     * @param known whether the node ever answered; without it there are no gauges, facts and drivers
     */
    public record Model(
            boolean connected,
            String problem,
            boolean known,
            String running,
            String paused,
            String load,
            List<Gauge> gauges,
            Map<String, String> facts,
            List<Driver> drivers,
            List<String> warnings) {}

    @Override
    public void addTo(Site site) {
        site.page(
                        "/ui/node",
                        visit -> View.page(Nav.NODE, "Node", "node")
                                .with("model", model(visit))
                                .live(LIVE))
                .live(
                        LIVE,
                        visit -> Map.of("node", View.fragment("node_page/all").with("model", model(visit))));
    }

    private Model model(Visit visit) {
        NodeStats stats = atoll.stats().node(visit.caller());
        return new Model(
                stats.connected(),
                stats.problem().orElse(""),
                stats.info().isPresent(),
                Format.count(stats.runningSandboxes()),
                Format.count(stats.pausedSandboxes()),
                stats.loadAverage().isPresent()
                        ? String.format(Locale.ROOT, "%.1f", stats.loadAverage().getAsDouble())
                        : "–",
                stats.info()
                        .map(info -> List.of(
                                gauge("Memory", info.memoryTotalBytes(), info.memoryAvailableBytes()),
                                gauge("Disk", info.diskTotalBytes(), info.diskAvailableBytes())))
                        .orElse(List.of()),
                stats.info().map(info -> facts(stats, info)).orElse(Map.of()),
                stats.info()
                        .map(info ->
                                info.runtimes().stream().map(NodePage::driver).toList())
                        .orElse(List.of()),
                stats.info().map(NodeInfo::warnings).orElse(List.of()));
    }

    static Gauge gauge(String title, long total, long available) {
        long used = Math.max(0, total - available);
        return new Gauge(title, total == 0 ? 0 : 1000 * used / total, Format.bytes(used), Format.bytes(total));
    }

    private static Map<String, String> facts(NodeStats stats, NodeInfo info) {
        Map<String, String> facts = new java.util.LinkedHashMap<>();
        facts.put("CPUs", Format.count(info.cpus()));
        facts.put("Boxes", Format.count(info.boxes()));
        facts.put("runsc build", info.runtimeVersion());
        facts.put("cgroup version", "v" + info.cgroupVersion());
        facts.put("Machine's kernel", stats.kernelVersion());
        facts.put("Engine", info.engineVersion());
        facts.put("Engine started", Format.time(info.startedAt()));
        facts.put("Server started", Format.time(stats.serverStartedAt()));
        facts.put("Instance", info.instance());
        facts.put("Restores snapshots of", String.join(", ", info.runtimeVersions()));
        return facts;
    }

    private static Driver driver(NodeInfo.BoxRuntime runtime) {
        return new Driver(
                runtime.name(),
                runtime.version(),
                runtime.available(),
                runtime.problem(),
                String.join(", ", runtime.lacks()).replace('_', ' '));
    }
}
