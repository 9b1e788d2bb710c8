package atoll.api;

import atoll.api.StatsApi.LatencyView;
import atoll.core.Caller;
import atoll.core.ServerStatus;
import atoll.core.stats.PoolMinute;
import atoll.core.stats.PoolStats;
import atoll.core.stats.Stats;
import atoll.http.Exchange;
import java.io.IOException;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;

/** {@code /v1/pools}: what waits to be taken, by template, and how it went. */
final class PoolsApi {
    private final Stats stats;

    PoolsApi(Stats stats) {
        this.stats = stats;
    }

    record Golden(String snapshotId, long sizeBytes) {}

    record MinuteView(Instant at, int depth, int ready, long hits, Map<String, Long> misses, LatencyView took) {
        static MinuteView of(PoolMinute minute) {
            return new MinuteView(
                    minute.at(),
                    minute.depth(),
                    minute.ready(),
                    minute.hits(),
                    minute.misses(),
                    LatencyView.of(minute.took()));
        }
    }

    record PoolView(
            String template,
            int depth,
            int ready,
            int starting,
            int prepared,
            Optional<Golden> golden,
            long hits,
            Map<String, Long> misses,
            OptionalDouble hitRate,
            LatencyView took,
            Map<String, Long> starts,
            Map<String, Long> restoreFailures,
            long memoryBytes,
            Optional<String> lastFailure,
            List<MinuteView> history) {
        static PoolView of(PoolStats stats) {
            ServerStatus.PoolStatus pool = stats.pool();
            return new PoolView(
                    pool.template(),
                    pool.target(),
                    pool.ready(),
                    pool.starting(),
                    pool.prepared(),
                    pool.golden().map(golden -> new Golden(golden.id().toString(), golden.sizeBytes())),
                    pool.hits(),
                    pool.misses(),
                    stats.hitRate(),
                    LatencyView.of(stats.took()),
                    pool.starts(),
                    pool.restoreFailures(),
                    pool.memoryBytes(),
                    pool.lastFailure(),
                    stats.minutes().stream().map(MinuteView::of).toList());
        }
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        int minutes = (int) exchange.query("minutes", 0, 0, Stats.MOST_MINUTES);
        List<PoolView> all =
                stats.pools(caller, minutes).stream().map(PoolView::of).toList();
        exchange.json(200, new Wire.Items<>(all, Optional.empty()));
    }
}
