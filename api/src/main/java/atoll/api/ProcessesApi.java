package atoll.api;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.SandboxId;
import atoll.core.execution.OutputReader;
import atoll.core.process.OutputChoice;
import atoll.core.process.ProcessQuery;
import atoll.core.process.ProcessRecord;
import atoll.core.process.ProcessRef;
import atoll.core.process.Processes;
import atoll.core.process.SignalTarget;
import atoll.core.process.Signals;
import atoll.core.process.StartProcess;
import atoll.core.process.Written;
import atoll.http.BodyStream;
import atoll.http.Exchange;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** {@code /v1/sandboxes/{sandbox_id}/processes} and {@code /ps}: programs in a sandbox. */
final class ProcessesApi {
    private static final Set<String> START = start();
    private static final Set<String> SIGNAL = Set.of("signal", "target");
    private static final Set<String> SIGNAL_GUEST = Set.of("signal");
    private static final Set<String> RESIZE = Set.of("cols", "rows");
    private static final Set<String> WAIT = Set.of("timeout_seconds");
    private static final Duration FOREVER = Duration.ofDays(365);
    /** A program that reads nothing for so long does not get the rest of what was sent. */
    private static final Duration WRITE_LIMIT = Duration.ofSeconds(60);

    private final Processes processes;

    ProcessesApi(Processes processes) {
        this.processes = processes;
    }

    private static Set<String> start() {
        var names = new HashSet<String>(StartProcessArguments.NAMES);
        names.addAll(List.of("wait", "wait_seconds"));
        return Set.copyOf(names);
    }

    void start(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), START);
        StartProcess request =
                StartProcessArguments.of(fields, Optional.ofNullable(exchange.header("Idempotency-Key")));
        Optional<Duration> limit = fields.seconds("wait_seconds");
        boolean wait = fields.flag("wait") || limit.isPresent();
        ProcessRecord started = processes.start(caller, sandbox(exchange), request);
        ProcessRef ref = ProcessRef.of(started.id());
        if (exchange.accepts("text/event-stream")) {
            ProcessEvents.write(exchange, processes.attach(caller, ref, 0), ProcessEvents.After.NOTHING);
        } else if (wait) {
            exchange.json(200, ProcessViews.Result.of(processes.collect(caller, ref, limit.orElse(FOREVER))));
        } else {
            exchange.json(201, ProcessViews.View.of(started));
        }
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var query = new ProcessQuery(
                Optional.of(sandbox(exchange)),
                Paging.running(exchange),
                exchange.queriesBeginningWith("label."),
                Paging.of(exchange));
        exchange.json(200, Wire.Items.of(processes.list(caller, query).map(ProcessViews.View::of)));
    }

    void get(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, ProcessViews.View.of(processes.get(caller, process(exchange))));
    }

    void kill(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, ProcessViews.View.of(processes.kill(caller, process(exchange))));
    }

    /** The raw bytes of one stream, or of both. */
    void output(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        OutputChoice choice = choice(exchange.query("stream"));
        long offset = exchange.query("offset", 0, 0, Long.MAX_VALUE);
        boolean follow = exchange.query("follow", false);
        try (OutputReader reader = processes.read(caller, process(exchange), choice, offset, follow)) {
            RawOutput.write(exchange, reader, follow);
        }
    }

    void events(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        ProcessEvents.After after = ProcessEvents.After.of(exchange);
        ProcessEvents.write(exchange, processes.attach(caller, process(exchange), after.seq()), after);
    }

    record Input(long offset, boolean closed, boolean complete) {}

    /** Writes the body piece by piece, as fast as the program reads. */
    void stdin(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        ProcessRef process = process(exchange);
        long from = exchange.query("offset", -1, 0, Long.MAX_VALUE);
        boolean close = exchange.query("close", false);
        OptionalLong at = from < 0 ? OptionalLong.empty() : OptionalLong.of(from);
        BodyStream body = exchange.bodyStream();
        @Nullable Written reached = null;
        Optional<ByteBuffer> piece = body.next();
        while (piece.isPresent()) {
            int size = piece.get().remaining();
            reached = processes.write(caller, process, at, piece.get(), false, WRITE_LIMIT);
            if (!reached.complete()) {
                close = false;
                break;
            }
            at = at.isPresent() ? OptionalLong.of(at.getAsLong() + size) : at;
            piece = body.next();
        }
        if (close || reached == null) {
            reached = close(caller, process, at, close, reached);
        }
        exchange.json(200, new Input(reached.offset(), reached.closed(), reached.complete()));
    }

    private Written close(Caller caller, ProcessRef process, OptionalLong at, boolean close, @Nullable Written reached)
            throws InterruptedException {
        try {
            return processes.write(caller, process, at, ByteBuffer.allocate(0), close, WRITE_LIMIT);
        } catch (AtollException e) {
            if (reached == null || e.code() != ErrorCode.CONFLICT) {
                throw e;
            }
            // It took all and has ended before its input was to.
            return new Written(reached.offset(), true, true);
        }
    }

    void signal(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), SIGNAL);
        int signal = signal(fields);
        SignalTarget target = fields.text("target")
                .map(ProcessesApi::target)
                .orElse(signal == Signals.KILL ? SignalTarget.TREE : SignalTarget.GROUP);
        ProcessRef process = process(exchange);
        processes.signal(caller, process, signal, target);
        exchange.json(200, ProcessViews.View.of(processes.get(caller, stable(caller, process))));
    }

    void resize(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), RESIZE);
        ProcessRef process = stable(caller, process(exchange));
        processes.resize(caller, process, StartProcessArguments.size(fields));
        exchange.json(200, ProcessViews.View.of(processes.get(caller, process)));
    }

    void await(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJsonIfAny(), WAIT);
        Duration limit = fields.seconds("timeout_seconds").orElse(FOREVER);
        exchange.json(200, ProcessViews.View.of(processes.await(caller, process(exchange), limit)));
    }

    void ps(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<ProcessViews.Guest> all = processes.guestProcesses(caller, sandbox(exchange)).stream()
                .map(ProcessViews.Guest::of)
                .toList();
        exchange.json(200, new Wire.Items<>(all, Optional.empty()));
    }

    void signalGuest(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        int signal = signal(new Fields(exchange.readJson(), SIGNAL_GUEST));
        if (!(ProcessRef.parse(sandbox(exchange), exchange.path("pid"))
                instanceof ProcessRef.ByPid(SandboxId sandbox, int pid))) {
            throw AtollException.invalid(
                    "pid: \"%s\" (expected: a number)".formatted(exchange.path("pid")), "Send a pid of GET …/ps.");
        }
        processes.signalGuest(caller, sandbox, pid, signal);
        exchange.empty(204);
    }

    private static SandboxId sandbox(Exchange exchange) {
        return SandboxId.parse(exchange.path("sandbox_id"));
    }

    private static ProcessRef process(Exchange exchange) {
        return ProcessRef.parse(sandbox(exchange), exchange.path("process"));
    }

    /** Named by its id: a pid names it only until it ends. */
    private ProcessRef stable(Caller caller, ProcessRef process) {
        return process instanceof ProcessRef.ByPid
                ? ProcessRef.of(processes.get(caller, process).id())
                : process;
    }

    private static int signal(Fields fields) {
        return Signals.parse(fields.textOrNumber("signal")
                .orElseThrow(() -> AtollException.invalid(
                        "signal is missing (expected: a name like TERM, or a number)", "Send signal.")));
    }

    private static SignalTarget target(String name) {
        return switch (name) {
            case "process" -> SignalTarget.PROCESS;
            case "group" -> SignalTarget.GROUP;
            case "tree" -> SignalTarget.TREE;
            default ->
                throw AtollException.invalid(
                        "target: \"%s\" (expected: process, group or tree)".formatted(name), "Correct the target.");
        };
    }

    private static OutputChoice choice(@Nullable String name) {
        return switch (name == null ? "stdout" : name.toLowerCase(Locale.ROOT)) {
            case "stdout" -> OutputChoice.STDOUT;
            case "stderr" -> OutputChoice.STDERR;
            case "combined" -> OutputChoice.COMBINED;
            default ->
                throw AtollException.invalid(
                        "stream: \"%s\" (expected: stdout, stderr or combined)".formatted(name),
                        "Correct the query parameter.");
        };
    }
}
