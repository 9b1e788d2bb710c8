package atoll.api;

import atoll.core.Caller;
import atoll.core.Scope;
import atoll.core.ServerStatus;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;

/** {@code /v1/pools}: what waits to be taken, by template. */
final class PoolsApi {
    private final Supplier<ServerStatus> status;

    PoolsApi(Supplier<ServerStatus> status) {
        this.status = status;
    }

    record Golden(String snapshotId, long sizeBytes) {}

    record PoolView(
            String template,
            int depth,
            int ready,
            int starting,
            int prepared,
            Optional<Golden> golden,
            long hits,
            Map<String, Long> misses,
            Map<String, Long> starts,
            Map<String, Long> restoreFailures,
            long memoryBytes,
            Optional<String> lastFailure) {
        static PoolView of(ServerStatus.PoolStatus pool) {
            return new PoolView(
                    pool.template(),
                    pool.target(),
                    pool.ready(),
                    pool.starting(),
                    pool.prepared(),
                    pool.golden().map(golden -> new Golden(golden.id().toString(), golden.sizeBytes())),
                    pool.hits(),
                    pool.misses(),
                    pool.starts(),
                    pool.restoreFailures(),
                    pool.memoryBytes(),
                    pool.lastFailure());
        }
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        caller.require(Scope.READ);
        List<PoolView> all = status.get().pools().stream().map(PoolView::of).toList();
        exchange.json(200, new Wire.Items<>(all, Optional.empty()));
    }
}
