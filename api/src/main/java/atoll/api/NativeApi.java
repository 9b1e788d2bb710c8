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
        Guard<Caller> read = needing(auth, Scope.READ);
        Guard<Caller> execute = needing(auth, Scope.EXECUTE);
        var mcp = new McpApi(atoll.codeExecution(), version, allowedOrigins);
        var health = new HealthApi(status, version);
        routes.get("/metrics", read.guard((exchange, _) -> {
                    exchange.bytes(
                            200,
                            "text/plain; version=0.0.4; charset=utf-8",
                            metrics.text(status.get()).getBytes(StandardCharsets.UTF_8));
                }))
                .post("/mcp", execute.guard(mcp::post))
                .delete("/mcp", execute.guard(mcp::delete))
                .get("/mcp", execute.guard(mcp::get))
                .add("OPTIONS", "/mcp", mcp::preflight)
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

        Guard<Caller> read = needing(auth, Scope.READ).checking(NativeApi::checkQuery);
        Guard<Caller> execute = needing(auth, Scope.EXECUTE).checking(NativeApi::checkQuery);
        Guard<Caller> admin = needing(auth, Scope.ADMIN).checking(NativeApi::checkQuery);

        routes.post("/v1/code_exec", execute.guard(codeExec::codeExec))
                .get("/v1/executions", read.guard(executions::list))
                .get("/v1/executions:notebook", read.guard(executions::notebook))
                .get("/v1/executions/{execution_id}", read.guard(executions::get))
                .get("/v1/executions/{execution_id}/events", read.guard(executions::events))
                .get("/v1/executions/{execution_id}/output", read.guard(executions::output))
                .post("/v1/executions/{execution_id}:interrupt", execute.guard(executions::interrupt))
                .get("/v1/sandboxes", read.guard(sandboxes::list))
                .post("/v1/sandboxes", execute.guard(sandboxes::create))
                .get("/v1/sandboxes/{sandbox_id}", read.guard(sandboxes::get))
                .add("PATCH", "/v1/sandboxes/{sandbox_id}", execute.guard(sandboxes::update))
                .delete("/v1/sandboxes/{sandbox_id}", execute.guard(sandboxes::delete))
                .post("/v1/sandboxes/{sandbox_id}:pause", execute.guard(sandboxes::pause))
                .post("/v1/sandboxes/{sandbox_id}:resume", execute.guard(sandboxes::resume))
                .post("/v1/sandboxes/{sandbox_id}:extend", execute.guard(sandboxes::extend))
                .post("/v1/sandboxes/{sandbox_id}:fork", execute.guard(sandboxes::fork))
                .post("/v1/sandboxes/{sandbox_id}:rollback", execute.guard(sandboxes::rollback))
                .get("/v1/events", read.guard(events::list))
                .get("/v1/sandboxes/{sandbox_id}/events", read.guard(events::ofSandbox))
                .get("/v1/sandboxes/{sandbox_id}/runs", read.guard(sandboxes::runs))
                .post("/v1/sandboxes/{sandbox_id}/snapshots", execute.guard(snapshots::create))
                .get("/v1/snapshots", read.guard(snapshots::list))
                .post("/v1/snapshots/file", admin.guard(snapshots::importFile))
                .get("/v1/snapshots/{snapshot_id}", read.guard(snapshots::get))
                .add("PATCH", "/v1/snapshots/{snapshot_id}", execute.guard(snapshots::update))
                .delete("/v1/snapshots/{snapshot_id}", execute.guard(snapshots::delete))
                .get("/v1/snapshots/{snapshot_id}/file", execute.guard(snapshots::exportFile))
                .get("/v1/sandboxes/{sandbox_id}/contexts", read.guard(contexts::list))
                .post("/v1/sandboxes/{sandbox_id}/contexts", execute.guard(contexts::create))
                .get("/v1/sandboxes/{sandbox_id}/contexts/{context_id}", read.guard(contexts::get))
                .delete("/v1/sandboxes/{sandbox_id}/contexts/{context_id}", execute.guard(contexts::close))
                .post("/v1/sandboxes/{sandbox_id}/contexts/{context_id}:restart", execute.guard(contexts::restart))
                .post("/v1/sandboxes/{sandbox_id}/contexts/{context_id}:interrupt", execute.guard(contexts::interrupt))
                .post("/v1/sandboxes/{sandbox_id}/contexts/{context_id}/executions", execute.guard(contexts::execute))
                .get("/v1/sandboxes/{sandbox_id}/contexts/{context_id}/executions", read.guard(contexts::executions))
                .post("/v1/sandboxes/{sandbox_id}/processes", execute.guard(processes::start))
                .get("/v1/sandboxes/{sandbox_id}/processes", read.guard(processes::list))
                .get("/v1/sandboxes/{sandbox_id}/processes/{process}", read.guard(processes::get))
                .delete("/v1/sandboxes/{sandbox_id}/processes/{process}", execute.guard(processes::kill))
                .get("/v1/sandboxes/{sandbox_id}/processes/{process}/output", read.guard(processes::output))
                .get("/v1/sandboxes/{sandbox_id}/processes/{process}/events", read.guard(processes::events))
                .post("/v1/sandboxes/{sandbox_id}/processes/{process}/stdin", execute.guard(processes::stdin))
                .post("/v1/sandboxes/{sandbox_id}/processes/{process}:signal", execute.guard(processes::signal))
                .post("/v1/sandboxes/{sandbox_id}/processes/{process}:resize", execute.guard(processes::resize))
                .post("/v1/sandboxes/{sandbox_id}/processes/{process}:wait", read.guard(processes::await))
                .get("/v1/sandboxes/{sandbox_id}/ps", execute.guard(processes::ps))
                .post("/v1/sandboxes/{sandbox_id}/ps/{pid}:signal", execute.guard(processes::signalGuest))
                .get("/v1/sandboxes/{sandbox_id}/metrics", read.guard(usage::list))
                .get("/v1/sandboxes/{sandbox_id}/files", execute.guard(files::read))
                .put("/v1/sandboxes/{sandbox_id}/files", execute.guard(files::write))
                .delete("/v1/sandboxes/{sandbox_id}/files", execute.guard(files::remove))
                .get("/v1/sandboxes/{sandbox_id}/files:stat", execute.guard(files::stat))
                .get("/v1/sandboxes/{sandbox_id}/files:list", execute.guard(files::list))
                .get("/v1/sandboxes/{sandbox_id}/files:find", execute.guard(files::find))
                .post("/v1/sandboxes/{sandbox_id}/files:mkdir", execute.guard(files::makeFolder))
                .post("/v1/sandboxes/{sandbox_id}/files:move", execute.guard(files::move))
                .post("/v1/sandboxes/{sandbox_id}/files:copy", execute.guard(files::copy))
                .post("/v1/sandboxes/{sandbox_id}/files:chmod", execute.guard(files::change))
                .post("/v1/sandboxes/{sandbox_id}/files:symlink", execute.guard(files::symlink))
                .post("/v1/sandboxes/{sandbox_id}/files:replace", execute.guard(files::replace))
                .post("/v1/sandboxes/{sandbox_id}/files:batch", execute.guard(files::batch))
                .get("/v1/sandboxes/{sandbox_id}/files:archive", execute.guard(files::pack))
                .put("/v1/sandboxes/{sandbox_id}/files:archive", execute.guard(files::unpack))
                .get("/v1/sandboxes/{sandbox_id}/files:watch", execute.guard(files::watch))
                .post("/v1/sandboxes/{sandbox_id}/files:watch", execute.guard(files::startWatch))
                .delete("/v1/sandboxes/{sandbox_id}/files:watch", execute.guard(files::endWatch))
                .get("/v1/sandboxes/{sandbox_id}/pty", execute.guardSocket(terminals::open))
                .get("/v1/sandboxes/{sandbox_id}/ports", execute.guard(ports::list))
                .get("/v1/sandboxes/{sandbox_id}/ports/{port}/tunnel", execute.guardSocket(ports::tunnel))
                .get("/v1/pools", read.guard(pools::list))
                .get("/v1/stats", read.guard(stats::totals))
                .get("/v1/node", read.guard(stats::node))
                .get("/v1/keys", admin.guard(keys::list))
                .post("/v1/keys", admin.guard(keys::create))
                .get("/v1/keys/{key_id}", admin.guard(keys::get))
                .delete("/v1/keys/{key_id}", admin.guard(keys::revoke))
                .get("/v1/templates", read.guard(templates::list))
                .post("/v1/templates", execute.guard(templates::create))
                .get("/v1/templates/{template_id}", read.guard(templates::get))
                .add("PATCH", "/v1/templates/{template_id}", execute.guard(templates::update))
                .delete("/v1/templates/{template_id}", execute.guard(templates::delete))
                .post("/v1/templates/{template_id}:duplicate", execute.guard(templates::duplicate))
                .post("/v1/templates/{template_id}:set_default", admin.guard(templates::setDefault))
                .post("/v1/templates/{template_id}:build", execute.guard(templates::build))
                .get("/v1/templates/{template_id}/versions", read.guard(templates::versions))
                .get("/v1/templates/{template_id}/dockerfile", read.guard(templates::dockerfile))
                .put("/v1/templates/{template_id}/context", execute.guard(templates::putContext))
                .get("/v1/templates/{template_id}/builds", read.guard(templates::builds))
                .get("/v1/templates/{template_id}/builds/{build_id}", read.guard(templates::getBuild))
                .post("/v1/templates/{template_id}/builds/{build_id}:cancel", execute.guard(templates::cancel))
                .get("/v1/templates/{template_id}/builds/{build_id}/log", read.guard(templates::log))
                .post("/v1/sandboxes/{sandbox_id}:save_template", execute.guard(templates::saveSandbox))
                .get("/v1/images", read.guard(images::list))
                .post("/v1/images:pull", execute.guard(images::pull))
                .post("/v1/images:import", execute.guard(images::importArchive))
                .post("/v1/images:prune", admin.guard(images::prune))
                .delete("/v1/images/{digest}", admin.guard(images::delete))
                .get("/v1/registries", admin.guard(images::registries))
                .put("/v1/registries/{host}", admin.guard(images::putRegistry))
                .delete("/v1/registries/{host}", admin.guard(images::deleteRegistry));
    }

    /** Core looks at the scope as well; here it is looked at before a body is read. */
    private static Guard<Caller> needing(Guard<Caller> auth, Scope scope) {
        return auth.and(caller -> caller.require(scope));
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
    private static void checkQuery(Exchange exchange) {
        if (exchange.rawQuery() != null) {
            OpenApi.QUERY_NAMES.check(exchange);
        }
    }

    private static final class OpenApi {
        static final byte[] DOCUMENT = read();
        static final Reference REFERENCE = new Reference(DOCUMENT);
        static final QueryNames QUERY_NAMES = new QueryNames(DOCUMENT);

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
