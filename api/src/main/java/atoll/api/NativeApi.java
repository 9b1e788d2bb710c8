package atoll.api;

import atoll.core.Atoll;
import atoll.core.Caller;
import atoll.core.Scope;
import atoll.core.ServerStatus;
import atoll.http.ErrorMapping;
import atoll.http.Exchange;
import atoll.http.Guard;
import atoll.http.KeyAuth;
import atoll.http.RouteTable;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;

/** The route table of the native API, over core. What is guarded asks for an API key. */
public final class NativeApi {
    private NativeApi() {}

    /** Core's errors as answers, for the HTTP server. */
    public static ErrorMapping errors() {
        return ErrorTable::map;
    }

    /** Adds all routes; pages of {@code allowedOrigins}, and of this machine, may call {@code /mcp}. */
    public static void addTo(
            RouteTable.Builder routes,
            Atoll atoll,
            PrometheusMetrics metrics,
            String version,
            List<String> allowedOrigins) {
        var auth = new KeyAuth<Caller>(atoll.keys()::authenticate);
        addTo(routes, atoll, auth);
        Supplier<ServerStatus> status = atoll::status;
        var mcp = new McpApi(atoll.codeExecution(), version, allowedOrigins);
        var health = new HealthApi(status, version);
        routes.get("/metrics", auth.guard((exchange, caller) -> {
                    caller.require(Scope.READ);
                    exchange.bytes(
                            200,
                            "text/plain; version=0.0.4; charset=utf-8",
                            metrics.text(status.get()).getBytes(StandardCharsets.UTF_8));
                }))
                .post("/mcp", auth.guard(mcp::post))
                .delete("/mcp", auth.guard(mcp::delete))
                .get("/healthz", health::health)
                .get("/openapi.json", exchange -> exchange.bytes(200, "application/json", OpenApi.DOCUMENT))
                .get("/docs", exchange -> OpenApi.REFERENCE.docs(exchange))
                .get("/llms.txt", exchange -> OpenApi.REFERENCE.llms(exchange))
                .get("/", exchange -> index(exchange, version));
    }

    /** Adds {@code /v1/…} alone, behind a guard of the caller's choice. */
    public static void addTo(RouteTable.Builder routes, Atoll atoll, Guard<Caller> auth) {
        var codeExec = new CodeExecApi(atoll.codeExecution());
        var executions = new ExecutionsApi(atoll.executions());
        var sandboxes = new SandboxesApi(atoll.sandboxes(), atoll.forks(), atoll.snapshots());
        var snapshots = new SnapshotsApi(atoll.snapshots());
        var contexts = new ContextsApi(atoll.contexts(), atoll.codeExecution(), atoll.executions());
        var processes = new ProcessesApi(atoll.processes());
        var usage = new MetricsApi(atoll.usage());
        var events = new EventsApi(atoll.events());
        var files = new FilesApi(atoll.files());
        var ports = new PortsApi(atoll.ports());
        var terminals = new PtyApi(atoll.processes());
        var templates = new TemplatesApi(atoll.templates());
        var images = new ImagesApi(atoll::images, atoll::registries);
        var pools = new PoolsApi(atoll.stats());
        var stats = new StatsApi(atoll.stats());
        var keys = new KeysApi(atoll.keys());

        routes.post("/v1/code_exec", auth.guard(codeExec::codeExec))
                .get("/v1/executions", auth.guard(executions::list))
                .get("/v1/executions:notebook", auth.guard(executions::notebook))
                .get("/v1/executions/{execution_id}", auth.guard(executions::get))
                .get("/v1/executions/{execution_id}/events", auth.guard(executions::events))
                .get("/v1/executions/{execution_id}/output", auth.guard(executions::output))
                .post("/v1/executions/{execution_id}:interrupt", auth.guard(executions::interrupt))
                .get("/v1/sandboxes", auth.guard(sandboxes::list))
                .post("/v1/sandboxes", auth.guard(sandboxes::create))
                .get("/v1/sandboxes/{sandbox_id}", auth.guard(sandboxes::get))
                .add("PATCH", "/v1/sandboxes/{sandbox_id}", auth.guard(sandboxes::update))
                .delete("/v1/sandboxes/{sandbox_id}", auth.guard(sandboxes::delete))
                .post("/v1/sandboxes/{sandbox_id}:pause", auth.guard(sandboxes::pause))
                .post("/v1/sandboxes/{sandbox_id}:resume", auth.guard(sandboxes::resume))
                .post("/v1/sandboxes/{sandbox_id}:extend", auth.guard(sandboxes::extend))
                .post("/v1/sandboxes/{sandbox_id}:fork", auth.guard(sandboxes::fork))
                .post("/v1/sandboxes/{sandbox_id}:rollback", auth.guard(sandboxes::rollback))
                .get("/v1/events", auth.guard(events::list))
                .get("/v1/sandboxes/{sandbox_id}/events", auth.guard(events::ofSandbox))
                .get("/v1/sandboxes/{sandbox_id}/runs", auth.guard(sandboxes::runs))
                .post("/v1/sandboxes/{sandbox_id}/snapshots", auth.guard(snapshots::create))
                .get("/v1/snapshots", auth.guard(snapshots::list))
                .post("/v1/snapshots/file", auth.guard(snapshots::importFile))
                .get("/v1/snapshots/{snapshot_id}", auth.guard(snapshots::get))
                .add("PATCH", "/v1/snapshots/{snapshot_id}", auth.guard(snapshots::update))
                .delete("/v1/snapshots/{snapshot_id}", auth.guard(snapshots::delete))
                .get("/v1/snapshots/{snapshot_id}/file", auth.guard(snapshots::exportFile))
                .get("/v1/sandboxes/{sandbox_id}/contexts", auth.guard(contexts::list))
                .post("/v1/sandboxes/{sandbox_id}/contexts", auth.guard(contexts::create))
                .get("/v1/sandboxes/{sandbox_id}/contexts/{context_id}", auth.guard(contexts::get))
                .delete("/v1/sandboxes/{sandbox_id}/contexts/{context_id}", auth.guard(contexts::close))
                .post("/v1/sandboxes/{sandbox_id}/contexts/{context_id}:restart", auth.guard(contexts::restart))
                .post("/v1/sandboxes/{sandbox_id}/contexts/{context_id}:interrupt", auth.guard(contexts::interrupt))
                .post("/v1/sandboxes/{sandbox_id}/contexts/{context_id}/executions", auth.guard(contexts::execute))
                .get("/v1/sandboxes/{sandbox_id}/contexts/{context_id}/executions", auth.guard(contexts::executions))
                .post("/v1/sandboxes/{sandbox_id}/processes", auth.guard(processes::start))
                .get("/v1/sandboxes/{sandbox_id}/processes", auth.guard(processes::list))
                .get("/v1/sandboxes/{sandbox_id}/processes/{process}", auth.guard(processes::get))
                .delete("/v1/sandboxes/{sandbox_id}/processes/{process}", auth.guard(processes::kill))
                .get("/v1/sandboxes/{sandbox_id}/processes/{process}/output", auth.guard(processes::output))
                .get("/v1/sandboxes/{sandbox_id}/processes/{process}/events", auth.guard(processes::events))
                .post("/v1/sandboxes/{sandbox_id}/processes/{process}/stdin", auth.guard(processes::stdin))
                .post("/v1/sandboxes/{sandbox_id}/processes/{process}:signal", auth.guard(processes::signal))
                .post("/v1/sandboxes/{sandbox_id}/processes/{process}:resize", auth.guard(processes::resize))
                .post("/v1/sandboxes/{sandbox_id}/processes/{process}:wait", auth.guard(processes::await))
                .get("/v1/sandboxes/{sandbox_id}/ps", auth.guard(processes::ps))
                .post("/v1/sandboxes/{sandbox_id}/ps/{pid}:signal", auth.guard(processes::signalGuest))
                .get("/v1/sandboxes/{sandbox_id}/metrics", auth.guard(usage::list))
                .get("/v1/sandboxes/{sandbox_id}/files", auth.guard(files::read))
                .put("/v1/sandboxes/{sandbox_id}/files", auth.guard(files::write))
                .delete("/v1/sandboxes/{sandbox_id}/files", auth.guard(files::remove))
                .get("/v1/sandboxes/{sandbox_id}/files:stat", auth.guard(files::stat))
                .get("/v1/sandboxes/{sandbox_id}/files:list", auth.guard(files::list))
                .get("/v1/sandboxes/{sandbox_id}/files:find", auth.guard(files::find))
                .post("/v1/sandboxes/{sandbox_id}/files:mkdir", auth.guard(files::makeFolder))
                .post("/v1/sandboxes/{sandbox_id}/files:move", auth.guard(files::move))
                .post("/v1/sandboxes/{sandbox_id}/files:copy", auth.guard(files::copy))
                .post("/v1/sandboxes/{sandbox_id}/files:chmod", auth.guard(files::change))
                .post("/v1/sandboxes/{sandbox_id}/files:symlink", auth.guard(files::symlink))
                .post("/v1/sandboxes/{sandbox_id}/files:replace", auth.guard(files::replace))
                .post("/v1/sandboxes/{sandbox_id}/files:batch", auth.guard(files::batch))
                .get("/v1/sandboxes/{sandbox_id}/files:archive", auth.guard(files::pack))
                .put("/v1/sandboxes/{sandbox_id}/files:archive", auth.guard(files::unpack))
                .get("/v1/sandboxes/{sandbox_id}/files:watch", auth.guard(files::watch))
                .post("/v1/sandboxes/{sandbox_id}/files:watch", auth.guard(files::startWatch))
                .delete("/v1/sandboxes/{sandbox_id}/files:watch", auth.guard(files::endWatch))
                .get("/v1/sandboxes/{sandbox_id}/pty", auth.guardSocket(terminals::open))
                .get("/v1/sandboxes/{sandbox_id}/ports", auth.guard(ports::list))
                .get("/v1/sandboxes/{sandbox_id}/ports/{port}/tunnel", auth.guardSocket(ports::tunnel))
                .get("/v1/pools", auth.guard(pools::list))
                .get("/v1/stats", auth.guard(stats::totals))
                .get("/v1/node", auth.guard(stats::node))
                .get("/v1/keys", auth.guard(keys::list))
                .post("/v1/keys", auth.guard(keys::create))
                .get("/v1/keys/{key_id}", auth.guard(keys::get))
                .delete("/v1/keys/{key_id}", auth.guard(keys::revoke))
                .get("/v1/templates", auth.guard(templates::list))
                .post("/v1/templates", auth.guard(templates::create))
                .get("/v1/templates/{template_id}", auth.guard(templates::get))
                .add("PATCH", "/v1/templates/{template_id}", auth.guard(templates::update))
                .delete("/v1/templates/{template_id}", auth.guard(templates::delete))
                .post("/v1/templates/{template_id}:duplicate", auth.guard(templates::duplicate))
                .post("/v1/templates/{template_id}:set_default", auth.guard(templates::setDefault))
                .post("/v1/templates/{template_id}:build", auth.guard(templates::build))
                .get("/v1/templates/{template_id}/versions", auth.guard(templates::versions))
                .get("/v1/templates/{template_id}/dockerfile", auth.guard(templates::dockerfile))
                .put("/v1/templates/{template_id}/context", auth.guard(templates::putContext))
                .get("/v1/templates/{template_id}/builds", auth.guard(templates::builds))
                .get("/v1/templates/{template_id}/builds/{build_id}", auth.guard(templates::getBuild))
                .post("/v1/templates/{template_id}/builds/{build_id}:cancel", auth.guard(templates::cancel))
                .get("/v1/templates/{template_id}/builds/{build_id}/log", auth.guard(templates::log))
                .post("/v1/sandboxes/{sandbox_id}:save_template", auth.guard(templates::saveSandbox))
                .get("/v1/images", auth.guard(images::list))
                .post("/v1/images:pull", auth.guard(images::pull))
                .post("/v1/images:import", auth.guard(images::importArchive))
                .post("/v1/images:prune", auth.guard(images::prune))
                .delete("/v1/images/{digest}", auth.guard(images::delete))
                .get("/v1/registries", auth.guard(images::registries))
                .put("/v1/registries/{host}", auth.guard(images::putRegistry))
                .delete("/v1/registries/{host}", auth.guard(images::deleteRegistry));
    }

    private static void index(Exchange exchange, String version) throws IOException, InterruptedException {
        exchange.json(
                200,
                new Index(
                        "atoll",
                        version,
                        Map.of(
                                "openapi",
                                "/openapi.json",
                                "health",
                                "/healthz",
                                "mcp",
                                "/mcp",
                                "code_exec",
                                "/v1/code_exec")));
    }

    record Index(String name, String version, Map<String, String> links) {}

    /** Read when it is first asked for, or at the latest by the first test. */
    private static final class OpenApi {
        static final byte[] DOCUMENT = read();
        static final Reference REFERENCE = new Reference(DOCUMENT);

        private static byte[] read() {
            try (InputStream document = NativeApi.class.getResourceAsStream("openapi.json")) {
                if (document == null) {
                    throw new IllegalStateException("openapi.json is missing in the jar");
                }
                return document.readAllBytes();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }
}
