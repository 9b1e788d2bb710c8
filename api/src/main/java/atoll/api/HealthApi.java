package atoll.api;

import atoll.core.ServerStatus;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;

/** {@code GET /healthz}: 200 when code can be run, else 503; in both cases what is wrong. */
final class HealthApi {
    private final Supplier<ServerStatus> status;
    private final String version;

    HealthApi(Supplier<ServerStatus> status, String version) {
        this.status = status;
        this.version = version;
    }

    record Health(String status, String version, List<String> problems, Engine engine, List<Pool> pools) {}

    record Engine(boolean connected, Optional<String> version, Optional<String> runtimeVersion) {}

    record Pool(String template, int target, int ready, int starting) {}

    void health(Exchange exchange) throws IOException, InterruptedException {
        ServerStatus now = status.get();
        var problems = new ArrayList<String>();
        now.problem()
                .ifPresent(why -> problems.add(
                        now.replaced()
                                ? why
                                : "the engine can't be reached: %s; the server goes on trying".formatted(why)));
        if (!now.nodeConnected() && problems.isEmpty()) {
            problems.add("the engine does not answer: see that atoll-engine runs; the server goes on trying");
        } else if (!now.ready() && problems.isEmpty()) {
            problems.add("the server is comparing its records with the engine; that takes a moment after a start");
        }
        var pools = new ArrayList<Pool>();
        for (ServerStatus.PoolStatus pool : now.pools()) {
            pools.add(new Pool(pool.template(), pool.target(), pool.ready(), pool.starting()));
            pool.lastFailure()
                    .ifPresent(why ->
                            problems.add("sandboxes of template %s do not start: %s".formatted(pool.template(), why)));
        }
        now.node().ifPresent(node -> problems.addAll(node.warnings()));
        var engine = new Engine(
                now.nodeConnected(),
                now.node().map(node -> node.engineVersion()),
                now.node().map(node -> node.runtimeVersion()));
        boolean ready = now.nodeConnected() && now.ready();
        exchange.json(ready ? 200 : 503, new Health(ready ? "ok" : "unavailable", version, problems, engine, pools));
    }
}
