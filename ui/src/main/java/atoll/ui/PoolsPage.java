package atoll.ui;

import atoll.core.Atoll;
import atoll.core.ServerStatus.PoolStatus;
import atoll.core.stats.Latency;
import atoll.core.stats.PoolStats;
import atoll.http.Form;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.stream.Collectors;

/** What waits to be taken, and how long it took to have a sandbox. */
public final class PoolsPage implements Page {
    private static final String LIVE = "/ui/live/pools";

    private final Atoll atoll;

    PoolsPage(Atoll atoll) {
        this.atoll = atoll;
    }

    /**
     * The pool of one template.
     *
     * @param misses cold starts by their reason, in words
     */
    public record Row(
            String template,
            int depth,
            int ready,
            int starting,
            String hits,
            String hitRate,
            List<String> misses,
            String p50,
            String p99,
            String memory,
            String golden,
            String failure) {}

    /** Of all pools together. */
    public record Sum(String p50, String p99, String ready, String memory, String hitRate, String measured) {}

    public record Model(Sum sum, List<Row> rows) {}

    @Override
    public void addTo(Site site) {
        site.page(
                        "/ui/pools",
                        visit -> View.page(Nav.POOLS, "Pools and latency", "pools")
                                .with("model", model(visit))
                                .live(LIVE)
                                .style("vendor/uplot.min.css")
                                .script("vendor/uplot.min.js")
                                .script("pools.js"))
                .live(LIVE, visit -> {
                    Model now = model(visit);
                    return Map.of(
                            "sum", View.fragment("pools/sum").with("sum", now.sum()),
                            "list", View.fragment("pools/list").with("model", now));
                })
                .action("/ui/pools", this::setDepth);
    }

    private Outcome setDepth(Visit visit, Form form) {
        String template = form.text("template");
        OptionalInt depth = form.given("depth")
                .map(text -> OptionalInt.of(SandboxesPage.number("depth", text).intValue()))
                .orElse(OptionalInt.empty());
        atoll.templates().update(visit.caller(), template, draft -> draft.poolDepth(depth));
        return Outcome.to("/ui/pools")
                .saying(template + ": "
                        + (depth.isPresent()
                                ? "depth " + Format.count(depth.getAsInt())
                                : "depth as the server is set"));
    }

    private Model model(Visit visit) {
        List<PoolStats> pools = atoll.stats().pools(visit.caller(), 0);
        return new Model(sum(visit, pools), pools.stream().map(PoolsPage::row).toList());
    }

    private Sum sum(Visit visit, List<PoolStats> pools) {
        Latency took = atoll.stats().totals(visit.caller()).coldStart();
        long hits = pools.stream().mapToLong(pool -> pool.pool().hits()).sum();
        long misses = pools.stream()
                .flatMap(pool -> pool.pool().misses().values().stream())
                .mapToLong(Long::longValue)
                .sum();
        return new Sum(
                words(took.p50()),
                words(took.p99()),
                Format.count(
                        pools.stream().mapToLong(pool -> pool.pool().ready()).sum()),
                Format.bytes(pools.stream()
                        .mapToLong(pool -> pool.pool().memoryBytes())
                        .sum()),
                hits + misses == 0 ? "–" : percent((double) hits / (hits + misses)),
                Format.count(took.count()));
    }

    private static Row row(PoolStats stats) {
        PoolStatus pool = stats.pool();
        return new Row(
                pool.template(),
                pool.target(),
                pool.ready(),
                pool.starting(),
                Format.count(pool.hits()),
                stats.hitRate().isPresent() ? percent(stats.hitRate().getAsDouble()) : "–",
                pool.misses().entrySet().stream()
                        .filter(miss -> miss.getValue() > 0)
                        .sorted(Map.Entry.comparingByKey())
                        .map(miss -> Format.count(miss.getValue()) + " " + reason(miss.getKey()))
                        .collect(Collectors.toList()),
                words(stats.took().p50()),
                words(stats.took().p99()),
                Format.bytes(pool.memoryBytes()),
                pool.golden()
                        .map(golden -> "golden snapshot of " + Format.bytes(golden.sizeBytes()))
                        .orElse("no golden snapshot"),
                pool.lastFailure().orElse(""));
    }

    private static String reason(String miss) {
        return switch (miss) {
            case "starting" -> "while it filled";
            case "empty" -> "empty";
            case "disabled" -> "without a pool";
            case "limits" -> "other limits";
            case "snapshot" -> "of snapshots";
            default -> miss;
        };
    }

    private static String words(Optional<Duration> duration) {
        return duration.map(Format::duration).orElse("–");
    }

    /** Cut, so that 100 % means all. */
    static String percent(double share) {
        return String.format(Locale.ROOT, "%.1f %%", Math.floor(share * 1000) / 10)
                .replace(".0 %", " %");
    }
}
