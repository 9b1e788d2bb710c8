package atoll.compat.e2b;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.Page;
import atoll.core.PageRequest;
import atoll.core.SandboxId;
import atoll.core.execution.StandardStream;
import atoll.core.file.FileOperation;
import atoll.core.file.Files;
import atoll.core.process.ProcessEnd;
import atoll.core.process.ProcessFeed;
import atoll.core.process.ProcessQuery;
import atoll.core.process.ProcessRecord;
import atoll.core.process.ProcessRef;
import atoll.core.process.ProcessUpdate;
import atoll.core.process.Processes;
import atoll.core.process.Program;
import atoll.core.process.SignalTarget;
import atoll.core.process.Signals;
import atoll.core.process.StartProcess;
import atoll.core.process.TerminalSize;
import atoll.core.process.Written;
import atoll.http.Ahead;
import atoll.http.Json;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/** {@code process.Process}: programs in a sandbox, named by their pid or by a tag. */
final class ProcessRpc {
    /** Labels under which what this protocol shows of a process, and core has no place for, is kept with it. */
    private static final String TAG = "e2b:tag";

    private static final String ENVS = "e2b:envs";
    private static final int LONGEST_LABEL = 1024;

    private static final Duration WRITE_LIMIT = Duration.ofSeconds(60);
    private static final Duration KEEP_ALIVE = Duration.ofSeconds(90);
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private final Processes processes;
    private final Files files;

    ProcessRpc(Processes processes, Files files) {
        this.processes = processes;
        this.files = files;
    }

    void serve(SandboxRequest request, String method) throws IOException, InterruptedException {
        switch (method) {
            case "List" -> Connect.unary(request.exchange(), _ -> list(request));
            case "Start" -> Connect.streaming(request.exchange(), (in, out) -> start(request, in.only(), out));
            case "Connect" -> Connect.streaming(request.exchange(), (in, out) -> connect(request, in.only(), out));
            case "SendInput" ->
                Connect.unary(request.exchange(), message -> {
                    input(request, process(request, message), message.path("input"));
                    return NODES.objectNode();
                });
            case "StreamInput" -> Connect.streaming(request.exchange(), (in, out) -> streamInput(request, in, out));
            case "SendSignal" -> Connect.unary(request.exchange(), message -> signal(request, message));
            case "Update" -> Connect.unary(request.exchange(), message -> update(request, message));
            case "CloseStdin" ->
                Connect.unary(request.exchange(), message -> {
                    Written closed = processes.write(
                            request.caller(),
                            process(request, message),
                            OptionalLong.empty(),
                            ByteBuffer.allocate(0),
                            true,
                            WRITE_LIMIT);
                    assert closed.offset() >= 0;
                    return NODES.objectNode();
                });
            default ->
                Connect.unary(request.exchange(), _ -> {
                    throw new Connect.Failure("unimplemented", "process.Process/" + method);
                });
        }
    }

    private void start(SandboxRequest request, JsonNode message, Connect.Outgoing out)
            throws IOException, InterruptedException {
        JsonNode config = message.path("process");
        var argv = new ArrayList<String>();
        argv.add(Text.required(config, "cmd"));
        config.path("args").forEach(argument -> argv.add(argument.asString()));
        Map<String, String> env = Text.texts(config, "envs");
        Optional<TerminalSize> terminal = size(message.path("pty"));
        var labels = new HashMap<String, String>();
        Text.text(message, "tag").ifPresent(tag -> labels.put(TAG, tag));
        String envs = Json.text(env);
        if (!env.isEmpty() && envs.length() <= LONGEST_LABEL) {
            labels.put(ENVS, envs);
        }
        JsonNode stdin = message.get("stdin");
        String folder = Text.text(config, "cwd")
                .filter(cwd -> !cwd.isEmpty())
                .map(SandboxRequest::path)
                .orElse("");
        var spec = new StartProcess(
                new Program.Argv(argv),
                folder,
                env,
                request.user(),
                stdin == null || stdin.isNull() || stdin.asBoolean(),
                timeout(request),
                terminal,
                labels,
                Optional.empty());
        ProcessRecord started;
        try {
            started = processes.start(request.caller(), request.sandbox(), spec);
        } catch (AtollException e) {
            throw unknownUser(request, e);
        }
        follow(request, started, new Seen(0, 0), out);
    }

    /** Core says one thing of a user that is not there and of a bad folder; this protocol tells them apart. */
    private RuntimeException unknownUser(SandboxRequest request, AtollException e) {
        if (e.code() == ErrorCode.INVALID_REQUEST && !request.user().isEmpty()) {
            try {
                var looked = files.apply(
                        request.caller(), request.sandbox(), request.user(), new FileOperation.Stat("/", true, false));
                assert looked.file().isPresent();
            } catch (AtollException second) {
                if (second.code() == ErrorCode.INVALID_REQUEST) {
                    return new Connect.Failure("unauthenticated", second.message());
                }
            }
        }
        return e;
    }

    private static Optional<Duration> timeout(SandboxRequest request) {
        String text = request.exchange().header("Connect-Timeout-Ms");
        if (text == null || text.isBlank()) {
            return Optional.empty();
        }
        try {
            long millis = Long.parseLong(text.strip());
            return millis > 0 ? Optional.of(Duration.ofMillis(millis)) : Optional.empty();
        } catch (NumberFormatException e) {
            throw Text.invalid("Connect-Timeout-Ms: \"" + text + "\" (expected: milliseconds)");
        }
    }

    private void connect(SandboxRequest request, JsonNode message, Connect.Outgoing out)
            throws IOException, InterruptedException {
        ProcessRecord process = processes.get(request.caller(), process(request, message));
        // What it has printed so far is not told again.
        follow(
                request,
                process,
                new Seen(process.progress().stdoutBytes(), process.progress().stderrBytes()),
                out);
    }

    /** How many bytes of each stream are not to be told. */
    private record Seen(long stdout, long stderr) {
        Optional<ByteBuffer> left(ProcessUpdate.Output output) {
            long known = output.stream() == StandardStream.STDOUT ? stdout : stderr;
            ByteBuffer data = output.data();
            long skip = Math.min(Math.max(0, known - output.offset()), data.remaining());
            data.position(data.position() + (int) skip);
            return data.hasRemaining() ? Optional.of(data) : Optional.empty();
        }
    }

    private void follow(SandboxRequest request, ProcessRecord process, Seen seen, Connect.Outgoing out)
            throws IOException, InterruptedException {
        out.send(event("start", NODES.objectNode().put("pid", process.pid())));
        ProcessFeed feed = processes.attach(request.caller(), ProcessRef.of(request.sandbox(), process.id()), 0);
        try (var updates = new Ahead<>(process.id().toString(), feed::next, feed::close)) {
            Duration pause = keepAlive(request);
            boolean ended = false;
            while (!ended) {
                ProcessUpdate update = updates.poll(pause);
                if (update == null) {
                    out.send(event("keepalive", NODES.objectNode()));
                } else {
                    ended = told(update, process, seen, out);
                }
            }
        }
    }

    private static Duration keepAlive(SandboxRequest request) {
        String text = request.exchange().header("Keepalive-Ping-Interval");
        try {
            return text == null ? KEEP_ALIVE : Duration.ofSeconds(Math.clamp(Long.parseLong(text.strip()), 1, 3600));
        } catch (NumberFormatException e) {
            return KEEP_ALIVE;
        }
    }

    /** Tells an update; whether it was the last. */
    private static boolean told(ProcessUpdate update, ProcessRecord process, Seen seen, Connect.Outgoing out)
            throws IOException, InterruptedException {
        switch (update) {
            case ProcessUpdate.Output output -> {
                Optional<ByteBuffer> left = seen.left(output);
                if (left.isPresent()) {
                    String name = process.terminal().isPresent()
                            ? "pty"
                            : output.stream() == StandardStream.STDOUT ? "stdout" : "stderr";
                    out.send(event("data", NODES.objectNode().put(name, base64(left.get()))));
                }
            }
            case ProcessUpdate.Ended(long _, ProcessRecord ended) -> {
                out.send(event("end", end(ended)));
                return true;
            }
            case ProcessUpdate.Started _, ProcessUpdate.Gap _ -> {
                // The start was told first of all; of a gap this protocol knows nothing.
            }
        }
        return false;
    }

    private static ObjectNode end(ProcessRecord process) {
        ProcessEnd end = process.end().orElseThrow();
        switch (end.reason()) {
            case TIMEOUT -> throw new Connect.Failure("deadline_exceeded", end.detail());
            case SANDBOX_ENDED ->
                throw new Connect.Failure("unavailable", "The sandbox was not found: " + end.detail());
            case LOST -> throw new Connect.Failure("unavailable", end.detail());
            case EXITED, SIGNALED, OUT_OF_MEMORY -> {
                // Said below.
            }
        }
        boolean exited = end.signal().isEmpty();
        int code = exited ? end.exitCode().orElse(0) : -1;
        String status = exited
                ? "exit status " + code
                : "signal: " + Signals.name(end.signal().getAsInt()).toLowerCase(Locale.ROOT);
        if (end.reason() == ProcessEnd.Reason.OUT_OF_MEMORY) {
            status = "out of memory: " + end.detail();
        }
        ObjectNode told =
                NODES.objectNode().put("exitCode", code).put("exited", exited).put("status", status);
        if (code != 0) {
            told.put("error", status);
        }
        return told;
    }

    private static ObjectNode event(String name, ObjectNode body) {
        ObjectNode event = NODES.objectNode();
        event.set(name, body);
        ObjectNode message = NODES.objectNode();
        message.set("event", event);
        return message;
    }

    private static String base64(ByteBuffer data) {
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }

    private ObjectNode list(SandboxRequest request) {
        ArrayNode all = NODES.arrayNode();
        for (ProcessRecord process : running(request.caller(), request.sandbox())) {
            ObjectNode config = NODES.objectNode().put("cmd", process.argv().getFirst());
            ArrayNode args = config.putArray("args");
            process.argv().stream().skip(1).forEach(args::add);
            ObjectNode envs = config.putObject("envs");
            String kept = process.labels().get(ENVS);
            if (kept != null) {
                Text.texts(NODES.objectNode().set("envs", Json.mapper().readTree(kept)), "envs")
                        .forEach(envs::put);
            }
            config.put("cwd", process.cwd());
            ObjectNode one = NODES.objectNode();
            one.set("config", config);
            one.put("pid", process.pid());
            String tag = process.labels().get(TAG);
            if (tag != null) {
                one.put("tag", tag);
            }
            all.add(one);
        }
        ObjectNode reply = NODES.objectNode();
        reply.set("processes", all);
        return reply;
    }

    private List<ProcessRecord> running(Caller caller, SandboxId sandbox) {
        return Page.all(page ->
                processes.list(caller, new ProcessQuery(Optional.of(sandbox), Optional.of(true), Map.of(), page)));
    }

    private ProcessRef process(SandboxRequest request, JsonNode message) {
        JsonNode selector = message.path("process");
        Optional<Long> pid = Text.number(selector, "pid");
        if (pid.isPresent()) {
            return ProcessRef.of(request.sandbox(), Math.toIntExact(Math.clamp(pid.get(), 0, Integer.MAX_VALUE)));
        }
        String tag = Text.required(selector, "tag");
        return processes
                .list(
                        request.caller(),
                        new ProcessQuery(
                                Optional.of(request.sandbox()),
                                Optional.of(true),
                                Map.of(TAG, tag),
                                new PageRequest(1, Optional.empty())))
                .items()
                .stream()
                .findFirst()
                .map(process -> ProcessRef.of(request.sandbox(), process.id()))
                .orElseThrow(() -> new Connect.Failure("not_found", "no process with the tag " + tag));
    }

    private void input(SandboxRequest request, ProcessRef process, JsonNode input) throws InterruptedException {
        String text = Text.text(input, "stdin")
                .or(() -> Text.text(input, "pty"))
                .orElseThrow(() -> Text.invalid("input: neither stdin nor pty"));
        byte[] bytes;
        try {
            bytes = Base64.getDecoder().decode(text);
        } catch (IllegalArgumentException e) {
            throw Text.invalid("input: it is not base64");
        }
        Written written = processes.write(
                request.caller(), process, OptionalLong.empty(), ByteBuffer.wrap(bytes), false, WRITE_LIMIT);
        if (!written.complete()) {
            throw new Connect.Failure(
                    "resource_exhausted", "the process has not read its input for " + WRITE_LIMIT.toSeconds() + " s");
        }
    }

    private void streamInput(SandboxRequest request, Connect.Incoming in, Connect.Outgoing out)
            throws IOException, InterruptedException {
        @Nullable ProcessRef process = null;
        Optional<JsonNode> message = in.next();
        while (message.isPresent()) {
            JsonNode start = message.get().get("start");
            JsonNode data = message.get().get("data");
            if (start != null) {
                // Named by its id from here on: a pid is given out again.
                process = ProcessRef.of(
                        request.sandbox(),
                        processes.get(request.caller(), process(request, start)).id());
            } else if (data != null) {
                if (process == null) {
                    throw new Connect.Failure("invalid_argument", "data came before the start");
                }
                input(request, process, data.path("input"));
            }
            message = in.next();
        }
        out.send(NODES.objectNode());
    }

    private ObjectNode signal(SandboxRequest request, JsonNode message) {
        int signal = switch (Text.required(message, "signal")) {
            case "SIGNAL_SIGKILL" -> Signals.KILL;
            case "SIGNAL_SIGTERM" -> Signals.TERMINATE;
            default ->
                throw Text.invalid(
                        "signal: " + message.get("signal") + " (expected: SIGNAL_SIGKILL or SIGNAL_SIGTERM)");
        };
        processes.signal(
                request.caller(),
                process(request, message),
                signal,
                signal == Signals.KILL ? SignalTarget.TREE : SignalTarget.GROUP);
        return NODES.objectNode();
    }

    private ObjectNode update(SandboxRequest request, JsonNode message) {
        ProcessRef process = process(request, message);
        TerminalSize size = size(message.path("pty")).orElseThrow(() -> Text.invalid("pty.size is missing"));
        processes.resize(request.caller(), process, size);
        return NODES.objectNode();
    }

    private static Optional<TerminalSize> size(JsonNode pty) {
        JsonNode size = pty.get("size");
        return size == null
                ? pty.isObject() ? Optional.of(TerminalSize.DEFAULT) : Optional.empty()
                : Optional.of(new TerminalSize(
                        Math.toIntExact(Text.number(size, "cols").orElse(80L)),
                        Math.toIntExact(Text.number(size, "rows").orElse(24L))));
    }
}
