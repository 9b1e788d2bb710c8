package atoll.api;

import atoll.core.Language;
import atoll.core.Metrics;
import atoll.core.ServerStatus;
import atoll.core.execution.ExitReason;
import atoll.core.process.ProcessEnd;
import atoll.http.RequestObserver;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Function;

/**
 * Counts what core and the HTTP server report, and writes it in Prometheus' text format. Our own, since four kinds of number need no library.
 */
public final class PrometheusMetrics implements Metrics, RequestObserver {
    /** A series that is there from the start shows its first increase. */
    private static final List<String> MISS_REASONS = List.of("starting", "empty", "disabled", "limits", "snapshot");

    private static final class Family {
        final ConcurrentMap<String, LongAdder> counters = new ConcurrentSkipListMap<>();
        final ConcurrentMap<String, Histogram> histograms = new ConcurrentSkipListMap<>();

        void count(String labels, long by) {
            counters.computeIfAbsent(labels, l -> new LongAdder()).add(by);
        }

        void time(String labels, long nanos) {
            histograms.computeIfAbsent(labels, l -> new Histogram()).record(nanos);
        }
    }

    private final Family sandboxesTaken = new Family();
    private final Recent coldStarts = new Recent();
    private final Family sandboxesEnded = new Family();
    private final Family executions = new Family();
    private final Family outputBytes = new Family();
    private final Family processesStarted = new Family();
    private final Family processesEnded = new Family();
    private final Family boxStarts = new Family();
    private final Family lifeSteps = new Family();
    private final Family requests = new Family();
    /** Labels of a request are made once per kind of request, not once per request. */
    private final ConcurrentMap<RequestKind, String> requestLabels = new ConcurrentHashMap<>();

    private record RequestKind(String route, String method, int status) {}

    @Override
    public void sandboxTaken(String template, String from, Duration took) {
        sandboxesTaken.time(labels("template", template, "from", from), took.toNanos());
        coldStarts.record(took.toNanos());
    }

    /** How long half of the sandboxes that were handed out lately took at most, from the request on. */
    public Optional<Duration> coldStartP50() {
        return coldStarts.quantile(0.5);
    }

    @Override
    public void sandboxEnded(String template, String reason) {
        sandboxesEnded.count(labels("template", template, "reason", reason), 1);
    }

    @Override
    public void executionEnded(Language language, ExitReason reason, Duration took, long bytes) {
        executions.time(labels("language", language.text(), "reason", reason.text()), took.toNanos());
        outputBytes.count(labels("language", language.text()), bytes);
    }

    @Override
    public void processStarted() {
        processesStarted.count("", 1);
    }

    @Override
    public void processEnded(ProcessEnd.Reason reason) {
        processesEnded.count(labels("reason", reason.text()), 1);
    }

    @Override
    public void boxStarted(String template, boolean succeeded, Duration took) {
        boxStarts.time(labels("template", template, "succeeded", Boolean.toString(succeeded)), took.toNanos());
    }

    @Override
    public void lifeStep(String step, boolean succeeded, Duration took) {
        lifeSteps.time(labels("step", step, "succeeded", Boolean.toString(succeeded)), took.toNanos());
    }

    @Override
    public void ended(String route, String method, int status, long nanos) {
        String known = switch (method) {
            case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS" -> method;
            // A method is whatever a client sends: as a label it must not grow without bound.
            default -> "other";
        };
        String labels = requestLabels.computeIfAbsent(
                new RequestKind(route, known, status),
                kind -> labels("route", kind.route, "method", kind.method, "status", Integer.toString(kind.status)));
        requests.time(labels, nanos);
    }

    String text(ServerStatus status) {
        var out = new StringBuilder(4096);
        gauge(out, "atoll_engine_connected", "Whether the engine answered last", status.nodeConnected() ? 1 : 0);
        gauge(out, "atoll_sandboxes_live", "Sandboxes that have not ended", status.liveSandboxes());
        gauge(out, "atoll_sandboxes_paused", "Sandboxes that are on disk only", status.pausedSandboxes());
        gauge(
                out,
                "atoll_executions_running",
                "Executions that run or wait for their context",
                status.runningExecutions());
        gauge(out, "atoll_processes_running", "Processes that callers started and that run", status.runningProcesses());
        pools(out, status);
        misses(out, status);
        histograms(
                out,
                "atoll_sandbox_taken_seconds",
                "Time to give a caller a sandbox, by where it came from",
                sandboxesTaken);
        histograms(out, "atoll_box_start_seconds", "Time to start a sandbox's body", boxStarts);
        histograms(
                out,
                "atoll_life_step_seconds",
                "Time to pause, resume and roll back a sandbox, by any cause",
                lifeSteps);
        histograms(out, "atoll_execution_seconds", "Run time of executions", executions);
        counters(out, "atoll_execution_output_bytes_total", "Bytes that executions printed", outputBytes);
        counters(out, "atoll_processes_started_total", "Processes that callers started", processesStarted);
        counters(out, "atoll_processes_ended_total", "Processes that ended, by how", processesEnded);
        counters(out, "atoll_sandboxes_ended_total", "Sandboxes that ended", sandboxesEnded);
        histograms(out, "atoll_http_request_seconds", "Time to answer a request, streams to their end", requests);
        return out.toString();
    }

    private static void pools(StringBuilder out, ServerStatus status) {
        String[][] kinds = {
            {"atoll_pool_target", "Started sandboxes that the pool is to hold", "gauge"},
            {"atoll_pool_ready", "Started sandboxes that wait to be taken", "gauge"},
            {"atoll_pool_starting", "Sandboxes on their way into the pool", "gauge"},
            {"atoll_pool_prepared", "Sandboxes without anything in them, for restores", "gauge"},
            {"atoll_pool_memory_bytes", "What those that wait are reckoned to take", "gauge"},
            {"atoll_pool_golden_bytes", "The snapshot that the pool starts from; 0 while there is none", "gauge"},
            {"atoll_pool_hits_total", "Sandboxes taken from the pool", "counter"},
        };
        for (int kind = 0; kind < kinds.length; kind++) {
            header(out, kinds[kind][0], kinds[kind][1], kinds[kind][2]);
            for (ServerStatus.PoolStatus pool : status.pools()) {
                long[] values = {
                    pool.target(),
                    pool.ready(),
                    pool.starting(),
                    pool.prepared(),
                    pool.memoryBytes(),
                    pool.golden().map(ServerStatus.PoolStatus.Golden::sizeBytes).orElse(0L),
                    pool.hits()
                };
                out.append("%s{%s} %d\n".formatted(kinds[kind][0], labels("template", pool.template()), values[kind]));
            }
        }
    }

    private static void misses(StringBuilder out, ServerStatus status) {
        String name = "atoll_pool_misses_total";
        header(out, name, "Sandboxes whose caller waited for a start, by its reason", "counter");
        perPool(out, status, name, "reason", MISS_REASONS, ServerStatus.PoolStatus::misses);
        name = "atoll_pool_starts_total";
        header(out, name, "Sandboxes begun for the pool, from its golden snapshot or from nothing", "counter");
        perPool(out, status, name, "how", List.of("restored", "started"), ServerStatus.PoolStatus::starts);
        name = "atoll_pool_restore_failures_total";
        header(out, name, "Restores of the golden snapshot that failed, by the error's code", "counter");
        perPool(out, status, name, "code", List.of(), ServerStatus.PoolStatus::restoreFailures);
    }

    /** What a pool counts by a label, which has at least these values. */
    private static void perPool(
            StringBuilder out,
            ServerStatus status,
            String name,
            String label,
            List<String> always,
            Function<ServerStatus.PoolStatus, Map<String, Long>> counts) {
        for (ServerStatus.PoolStatus pool : status.pools()) {
            var all = new TreeMap<String, Long>(counts.apply(pool));
            always.forEach(value -> all.putIfAbsent(value, 0L));
            all.forEach((value, count) -> out.append(
                    "%s{%s} %d\n".formatted(name, labels("template", pool.template(), label, value), count)));
        }
    }

    private static void gauge(StringBuilder out, String name, String help, long value) {
        header(out, name, help, "gauge");
        out.append(name).append(' ').append(value).append('\n');
    }

    private static void counters(StringBuilder out, String name, String help, Family family) {
        header(out, name, help, "counter");
        family.counters.forEach((labels, value) -> out.append(
                labels.isEmpty()
                        ? "%s %d\n".formatted(name, value.sum())
                        : "%s{%s} %d\n".formatted(name, labels, value.sum())));
    }

    private static void histograms(StringBuilder out, String name, String help, Family family) {
        header(out, name, help, "histogram");
        family.histograms.forEach((labels, histogram) -> histogram.write(out, name, labels));
    }

    private static void header(StringBuilder out, String name, String help, String type) {
        out.append("# HELP %s %s\n# TYPE %s %s\n".formatted(name, help, name, type));
    }

    private static String labels(String... namesAndValues) {
        var text = new StringBuilder();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            String value = namesAndValues[i + 1]
                    .replace("\\", "\\\\")
                    .replace("\"", "\\\"")
                    .replace("\n", "\\n");
            text.append(i == 0 ? "" : ",")
                    .append(namesAndValues[i])
                    .append("=\"")
                    .append(value)
                    .append('"');
        }
        return text.toString();
    }
}
