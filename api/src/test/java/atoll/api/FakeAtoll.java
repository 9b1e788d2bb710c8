package atoll.api;

import atoll.core.ApiKey;
import atoll.core.Atoll;
import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.Caller;
import atoll.core.ContextId;
import atoll.core.CreateKey;
import atoll.core.CreatedKey;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.KeyId;
import atoll.core.Keys;
import atoll.core.Language;
import atoll.core.Page;
import atoll.core.ProjectId;
import atoll.core.RunId;
import atoll.core.SandboxId;
import atoll.core.SandboxTokens;
import atoll.core.Scope;
import atoll.core.ServerStatus;
import atoll.core.Sessions;
import atoll.core.SnapshotId;
import atoll.core.event.Event;
import atoll.core.event.EventQuery;
import atoll.core.event.Events;
import atoll.core.execution.CapturedText;
import atoll.core.execution.ChangedFile;
import atoll.core.execution.ChangedFiles;
import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.CodeExecution;
import atoll.core.execution.ExecutionError;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionQuery;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExecutionResult;
import atoll.core.execution.ExecutionUpdate;
import atoll.core.execution.Executions;
import atoll.core.execution.ExitReason;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.file.Files;
import atoll.core.port.Ports;
import atoll.core.process.Processes;
import atoll.core.sandbox.Context;
import atoll.core.sandbox.Contexts;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.Created;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.Forks;
import atoll.core.sandbox.Lifecycle;
import atoll.core.sandbox.Run;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Sandboxes;
import atoll.core.sandbox.Term;
import atoll.core.sandbox.UpdateSandbox;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.snapshot.Snapshots;
import atoll.core.stats.Changes;
import atoll.core.stats.Latency;
import atoll.core.stats.NodeStats;
import atoll.core.stats.PoolStats;
import atoll.core.stats.Stats;
import atoll.core.stats.Totals;
import atoll.core.template.BuildUploads;
import atoll.core.template.Images;
import atoll.core.template.Limits;
import atoll.core.template.Registries;
import atoll.core.template.Template;
import atoll.core.template.Templates;
import atoll.core.usage.Usage;
import java.io.ByteArrayOutputStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Core without a node: the code of an execution names a program that a test has written down. A program prints at its reader's pace, as the real
 * node's does. Sandboxes, records and keys are as core promises them.
 */
final class FakeAtoll implements Atoll, Keys, CodeExecution, Executions, Sandboxes {
    static final String KEY = "atoll-test-key";
    static final Caller CALLER = new Caller(ProjectId.DEFAULT, KeyId.random(), Set.of(Scope.values()));
    private static final Instant NOW = Instant.parse("2026-01-02T03:04:05Z");

    /** What runs for some code. */
    @FunctionalInterface
    interface Program {
        void run(Terminal terminal) throws InterruptedException;
    }

    /** Where a program prints. */
    static final class Terminal {
        private Optional<ChangedFiles> files = Optional.empty();
        private final BlockingQueue<ExecutionUpdate> updates;
        private final Map<StandardStream, ByteArrayOutputStream> printed = new EnumMap<>(StandardStream.class);
        private final Map<StandardStream, Long> offsets = new EnumMap<>(StandardStream.class);
        private final List<ExecutionResult> results = new ArrayList<>();
        private final CountDownLatch interrupted = new CountDownLatch(1);
        private final Map<String, String> env;
        private ExitReason reason = ExitReason.COMPLETED;
        private OptionalInt exitCode = OptionalInt.empty();
        private Optional<ExecutionError> error = Optional.empty();
        private volatile boolean attached = true;

        Terminal(BlockingQueue<ExecutionUpdate> updates, Map<String, String> env) {
            this.updates = updates;
            this.env = env;
            for (StandardStream stream : StandardStream.values()) {
                printed.put(stream, new ByteArrayOutputStream());
                offsets.put(stream, 0L);
            }
        }

        void print(StandardStream stream, byte[] bytes) throws InterruptedException {
            long offset = offsets.getOrDefault(stream, 0L);
            offsets.put(stream, offset + bytes.length);
            ByteArrayOutputStream all = printed.get(stream);
            if (all != null && all.size() < 1 << 20) {
                all.writeBytes(bytes);
            }
            say(new ExecutionUpdate.Output(stream, ByteBuffer.wrap(bytes), offset));
        }

        void print(String text) throws InterruptedException {
            print(StandardStream.STDOUT, text.getBytes(StandardCharsets.UTF_8));
        }

        void display(ExecutionResult result) throws InterruptedException {
            results.add(result);
            say(new ExecutionUpdate.Result(result));
        }

        void drop(StandardStream stream, long bytes) throws InterruptedException {
            say(new ExecutionUpdate.Gap(stream, offsets.getOrDefault(stream, 0L), bytes));
        }

        void fail(ExecutionError thrown) {
            error = Optional.of(thrown);
            reason = ExitReason.ERROR;
        }

        void awaitInterrupt() throws InterruptedException {
            interrupted.await();
            reason = ExitReason.INTERRUPTED;
        }

        void exit(int code) {
            exitCode = OptionalInt.of(code);
            reason = ExitReason.EXITED;
        }

        String env(String name) {
            return env.getOrDefault(name, "");
        }

        /** Whether somebody still follows; what is printed after that is only in the record. */
        boolean attached() {
            return attached;
        }

        private void say(ExecutionUpdate update) throws InterruptedException {
            while (attached) {
                if (updates.offer(update, 20, TimeUnit.MILLISECONDS)) {
                    return;
                }
            }
        }

        private CapturedText captured(StandardStream stream) {
            ByteArrayOutputStream bytes = printed.get(stream);
            long total = offsets.getOrDefault(stream, 0L);
            String text = bytes == null ? "" : bytes.toString(StandardCharsets.UTF_8);
            return new CapturedText(text, total, bytes != null && bytes.size() < total);
        }
    }

    private final Map<String, Program> programs = new ConcurrentHashMap<>();
    private final Map<SandboxId, Sandbox> sandboxes = new ConcurrentHashMap<>();
    private final Map<SandboxId, Context> contexts = new ConcurrentHashMap<>();
    private final Map<ExecutionId, ExecutionRecord> records = new ConcurrentHashMap<>();
    private final Map<ExecutionId, Terminal> terminals = new ConcurrentHashMap<>();
    private final Map<String, ExecutionId> byIdempotencyKey = new ConcurrentHashMap<>();
    private final Map<String, CodeExecRequest> requestsByKey = new ConcurrentHashMap<>();
    volatile boolean nodeConnected = true;
    private volatile @Nullable CountDownLatch asked;
    private volatile @Nullable CountDownLatch ready;

    private final Template template = new Template(
            "python",
            "Python",
            "For tests",
            "python",
            List.of(Language.PYTHON, Language.BASH),
            Language.PYTHON,
            Limits.DEFAULT,
            Duration.ofSeconds(30),
            4,
            Map.of("pip", Map.of("numpy", "2.0")));

    /** What a call waits for until it has a sandbox, as one that is made or resumed takes its time. */
    FakeAtoll untilThere(CountDownLatch asked, CountDownLatch ready) {
        this.asked = asked;
        this.ready = ready;
        return this;
    }

    FakeAtoll program(String code, Program program) {
        programs.put(code, program);
        return this;
    }

    @Override
    public Caller authenticate(String secret) {
        if (!secret.equals(KEY)) {
            throw new AtollException(
                    ErrorCode.UNAUTHENTICATED, "The key is not known.", "", "Use a key of this server.");
        }
        return CALLER;
    }

    @Override
    public ExecutionHandle startInBackground(Caller caller, CodeExecRequest request) {
        return start(caller, request);
    }

    @Override
    public ExecutionHandle start(Caller caller, CodeExecRequest request) {
        awaitReady();
        if (request.idempotencyKey().isPresent()) {
            String key = request.idempotencyKey().get();
            CodeExecRequest first = requestsByKey.putIfAbsent(key, request);
            if (first != null && !first.equals(request)) {
                throw new AtollException(
                        ErrorCode.CONFLICT, "The key " + key + " came with another request.", "", "Use a new key.");
            }
            if (first != null) {
                ExecutionId known = byIdempotencyKey.get(key);
                if (known != null) {
                    return attach(caller, known);
                }
            }
        }
        request.language().ifPresent(Language::parse);
        request.template().ifPresent(id -> templates().get(caller, id));
        Sandbox sandbox = request.sandboxId()
                .map(id -> live(caller, id))
                .orElseGet(() -> made(new CreateSandbox(
                        request.template(),
                        request.language(),
                        Map.of(),
                        request.labels(),
                        request.limits(),
                        Optional.empty())));
        ExecutionId id = ExecutionId.random();
        request.idempotencyKey().ifPresent(key -> byIdempotencyKey.put(key, id));
        Context context = contextOf(sandbox.id());
        var updates = new SynchronousQueue<ExecutionUpdate>();
        var terminal = new Terminal(updates, request.env());
        if (request.listFiles()) {
            terminal.files = Optional.of(new ChangedFiles(List.of(new ChangedFile("/home/user/a.csv", 3, NOW)), false));
        }
        terminals.put(id, terminal);
        records.put(
                id,
                new ExecutionRecord(
                        id,
                        ProjectId.DEFAULT,
                        sandbox.id(),
                        context.id(),
                        Language.PYTHON,
                        request.code(),
                        request.code().length(),
                        NOW,
                        Optional.empty()));
        Program program = programs.getOrDefault(request.code(), t -> t.print("2\n"));
        Thread.ofVirtual().start(() -> run(id, program, terminal));
        return new Handle(records.get(id), updates, terminal);
    }

    private void awaitReady() {
        CountDownLatch tell = asked;
        CountDownLatch until = ready;
        if (tell == null || until == null) {
            return;
        }
        tell.countDown();
        try {
            until.await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private void run(ExecutionId id, Program program, Terminal terminal) {
        try {
            program.run(terminal);
            ExecutionRecord record = record(id);
            ExecutionOutcome outcome = outcome(record, terminal);
            records.put(
                    id,
                    new ExecutionRecord(
                            id,
                            record.project(),
                            record.sandboxId(),
                            record.contextId(),
                            record.language(),
                            record.code(),
                            record.codeBytes(),
                            record.createdAt(),
                            Optional.of(outcome)));
            terminal.say(new ExecutionUpdate.Finished(outcome));
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }

    private static ExecutionOutcome outcome(ExecutionRecord record, Terminal terminal) {
        CapturedText stdout = terminal.captured(StandardStream.STDOUT);
        CapturedText stderr = terminal.captured(StandardStream.STDERR);
        return new ExecutionOutcome(
                record.id(),
                record.sandboxId(),
                record.contextId(),
                new CapturedText(stdout.text().stripTrailing(), stdout.totalBytes(), stdout.truncated()),
                stdout,
                stderr,
                terminal.results,
                terminal.error,
                terminal.reason,
                terminal.exitCode,
                OptionalInt.empty(),
                true,
                "",
                Optional.empty(),
                NOW,
                Duration.ofNanos(1_234_567),
                stdout.truncated() || stderr.truncated(),
                terminal.files);
    }

    private static final class Handle implements ExecutionHandle {
        private final ExecutionRecord record;
        private final BlockingQueue<ExecutionUpdate> updates;
        private final Terminal terminal;
        private boolean finished;

        Handle(@Nullable ExecutionRecord record, BlockingQueue<ExecutionUpdate> updates, Terminal terminal) {
            if (record == null) {
                throw new IllegalStateException("an execution has a record");
            }
            this.record = record;
            this.updates = updates;
            this.terminal = terminal;
        }

        @Override
        public ExecutionId executionId() {
            return record.id();
        }

        @Override
        public SandboxId sandboxId() {
            return record.sandboxId();
        }

        @Override
        public OptionalLong number() {
            return OptionalLong.empty();
        }

        @Override
        public ContextId contextId() {
            return record.contextId();
        }

        @Override
        public Optional<ExecutionUpdate> next() throws InterruptedException {
            while (!finished && terminal.attached) {
                ExecutionUpdate update = updates.poll(20, TimeUnit.MILLISECONDS);
                if (update != null) {
                    finished = update instanceof ExecutionUpdate.Finished;
                    return Optional.of(update);
                }
            }
            return Optional.empty();
        }

        @Override
        public ExecutionOutcome await() throws InterruptedException {
            while (true) {
                ExecutionUpdate update = next().orElseThrow(() -> new IllegalStateException("closed before its end"));
                if (update instanceof ExecutionUpdate.Finished end) {
                    return end.outcome();
                }
            }
        }

        @Override
        public void interrupt() {
            terminal.interrupted.countDown();
        }

        @Override
        public void close() {
            terminal.attached = false;
        }
    }

    private ExecutionRecord record(ExecutionId id) {
        ExecutionRecord record = records.get(id);
        if (record == null) {
            throw new AtollException(
                    ErrorCode.EXECUTION_NOT_FOUND,
                    "There is no execution " + id + ".",
                    "",
                    "See the list of executions.");
        }
        return record;
    }

    @Override
    public ExecutionRecord get(Caller caller, ExecutionId id) {
        return record(id);
    }

    @Override
    public Page<ExecutionRecord> list(Caller caller, ExecutionQuery query) {
        List<ExecutionRecord> all = records.values().stream()
                .filter(r -> query.sandboxId().map(r.sandboxId()::equals).orElse(true))
                .filter(r -> query.running()
                        .map(running -> running == r.outcome().isEmpty())
                        .orElse(true))
                .limit(query.page().limit())
                .toList();
        return new Page<>(all, Optional.empty());
    }

    @Override
    public ExecutionHandle attach(Caller caller, ExecutionId id) {
        BlockingQueue<ExecutionUpdate> updates = new LinkedBlockingQueue<>();
        var replay = new Terminal(updates, Map.of());
        ExecutionRecord record = record(id);
        record.outcome().ifPresent(outcome -> updates.add(new ExecutionUpdate.Finished(outcome)));
        return new Handle(record, updates, replay);
    }

    @Override
    public void interrupt(Caller caller, ExecutionId id) {
        record(id);
        Terminal terminal = terminals.get(id);
        if (terminal != null) {
            terminal.interrupted.countDown();
        }
    }

    @Override
    public Optional<ExecutionId> interruptContext(Caller caller, SandboxId sandbox, ContextId context) {
        throw new UnsupportedOperationException("this fake interrupts executions by their id only");
    }

    @Override
    public OutputReader read(Caller caller, ExecutionId id, StandardStream stream, long offset, boolean follow) {
        record(id);
        Terminal terminal = terminals.get(id);
        ByteArrayOutputStream printed = terminal == null ? null : terminal.printed.get(stream);
        byte[] all = printed == null ? new byte[0] : printed.toByteArray();
        int from = (int) Math.min(offset, all.length);
        return new OutputReader() {
            private boolean read;

            @Override
            public Optional<Piece> next() {
                if (read || from == all.length) {
                    return Optional.empty();
                }
                read = true;
                return Optional.of(new Piece(from, ByteBuffer.wrap(all, from, all.length - from), 0));
            }

            @Override
            public void close() {}
        };
    }

    private Sandbox live(Caller caller, SandboxId id) {
        Sandbox sandbox = get(caller, id);
        if (sandbox.state() == SandboxState.ENDED) {
            throw new AtollException(
                    ErrorCode.SANDBOX_ENDED, "Sandbox " + id + " was deleted.", "", "Start a new one.");
        }
        return sandbox;
    }

    private Context contextOf(SandboxId id) {
        return contexts.computeIfAbsent(
                id, sandbox -> new Context(ContextId.random(), ProjectId.DEFAULT, sandbox, Language.PYTHON, true, NOW));
    }

    @Override
    public Created createOrGet(Caller caller, CreateSandbox request) {
        Optional<Sandbox> there = request.name().isEmpty()
                ? Optional.empty()
                : sandboxes.values().stream()
                        .filter(s -> s.state() != SandboxState.ENDED && s.name().equals(request.name()))
                        .findFirst();
        return there.map(sandbox -> new Created(sandbox, true)).orElseGet(() -> new Created(made(request), false));
    }

    private Sandbox made(CreateSandbox request) {
        var sandbox = new Sandbox(
                SandboxId.random(),
                ProjectId.DEFAULT,
                "python",
                1,
                SandboxState.RUNNING,
                request.limits().applyTo(Limits.DEFAULT),
                request.labels(),
                BoxId.random(),
                RunId.random(),
                Optional.empty(),
                request.name(),
                request.env(),
                request.lifecycle().applyTo(Lifecycle.UNBOUND),
                Sandbox.Times.since(NOW),
                Optional.empty(),
                Optional.empty(),
                NOW,
                Optional.empty());
        sandboxes.put(sandbox.id(), sandbox);
        return sandbox;
    }

    @Override
    public Sandbox pause(Caller caller, SandboxId id, SnapshotKind keep) {
        Sandbox before = live(caller, id);
        Sandbox after = before.state() == SandboxState.PAUSED
                ? before
                : before.pausing(SnapshotId.random()).paused(NOW);
        sandboxes.put(id, after);
        return after;
    }

    @Override
    public Sandbox resume(Caller caller, SandboxId id, Optional<Term> lifetime) {
        Sandbox before = live(caller, id);
        Sandbox after =
                before.state() == SandboxState.PAUSED ? before.resuming().resumed(RunId.random(), NOW) : before;
        sandboxes.put(id, after);
        return lifetime.isPresent() ? extend(caller, id, lifetime.get()) : after;
    }

    @Override
    public Sandbox extend(Caller caller, SandboxId id, Term lifetime) {
        Sandbox before = live(caller, id);
        Sandbox after = before.agreed(
                before.lifecycle().withLifetime(lifetime.length()),
                lifetime.length().map(NOW::plus));
        sandboxes.put(id, after);
        return after;
    }

    @Override
    public List<Run> runs(Caller caller, SandboxId id) {
        return List.of(Run.first(get(caller, id), Run.How.START));
    }

    @Override
    public Sandbox get(Caller caller, SandboxId id) {
        Sandbox sandbox = sandboxes.get(id);
        if (sandbox == null) {
            throw new AtollException(
                    ErrorCode.SANDBOX_NOT_FOUND,
                    "There is no sandbox " + id + ".",
                    "",
                    "Leave sandbox_id out for a new one.");
        }
        return sandbox;
    }

    @Override
    public Page<Sandbox> list(Caller caller, SandboxQuery query) {
        return new Page<>(List.copyOf(sandboxes.values()), Optional.empty());
    }

    @Override
    public Sandbox update(Caller caller, SandboxId id, UpdateSandbox changes) {
        Sandbox before = live(caller, id);
        var labels = new HashMap<String, String>(before.labels());
        changes.labels().forEach((name, value) -> {
            labels.remove(name);
            value.ifPresent(text -> labels.put(name, text));
        });
        Sandbox after = before.revised(changes.limits().applyTo(before.limits()), labels);
        sandboxes.put(id, after);
        return after;
    }

    @Override
    public Sandbox delete(Caller caller, SandboxId id) {
        Sandbox sandbox = get(caller, id);
        if (sandbox.state() != SandboxState.ENDED) {
            sandboxes.put(id, sandbox.ended(new Sandbox.End(EndReason.DELETED, "Deleted by a caller.", NOW)));
        }
        return get(caller, id);
    }

    @Override
    public CodeExecution codeExecution() {
        return this;
    }

    @Override
    public Executions executions() {
        return this;
    }

    @Override
    public Keys keys() {
        return this;
    }

    @Override
    public Sandboxes sandboxes() {
        return this;
    }

    @Override
    public Contexts contexts() {
        return elsewhere(Contexts.class);
    }

    @Override
    public Processes processes() {
        return elsewhere(Processes.class);
    }

    @Override
    public SandboxTokens tokens() {
        return elsewhere(SandboxTokens.class);
    }

    @Override
    public Usage usage() {
        return elsewhere(Usage.class);
    }

    @Override
    public Events events() {
        return new Events() {
            @Override
            public Page<Event> list(Caller caller, EventQuery query) {
                return new Page<>(
                        List.of(new Event(1, ProjectId.DEFAULT, NOW, "sandbox.started", "sb", "")), Optional.empty());
            }

            @Override
            public Page<Event> ofSandbox(Caller caller, SandboxId id, EventQuery query) {
                return list(caller, query);
            }
        };
    }

    @Override
    public CreatedKey create(Caller caller, CreateKey request) {
        return new CreatedKey(key(), "secret");
    }

    @Override
    public List<ApiKey> list(Caller caller) {
        return List.of(key());
    }

    @Override
    public ApiKey get(Caller caller, KeyId id) {
        return key();
    }

    @Override
    public void revoke(Caller caller, KeyId id) {}

    private static ApiKey key() {
        return new ApiKey(
                CALLER.key(),
                ProjectId.DEFAULT,
                "test",
                "atoll",
                CALLER.scopes(),
                NOW,
                Optional.empty(),
                Optional.empty());
    }

    /** The pools are those of {@link #status}; what is counted over time is tested over the real core. */
    @Override
    public Stats stats() {
        return new Stats() {
            @Override
            public Totals totals(Caller caller) {
                return new Totals(0, 0, 0, 0, Map.of(), Latency.NONE);
            }

            @Override
            public NodeStats node(Caller caller) {
                return new NodeStats(
                        false, Optional.of("none"), Optional.empty(), "6.1", OptionalDouble.empty(), 0, 0, NOW);
            }

            @Override
            public List<PoolStats> pools(Caller caller, int minutes) {
                return status().pools().stream()
                        .map(pool -> new PoolStats(pool, OptionalDouble.empty(), Latency.NONE, List.of()))
                        .toList();
            }

            @Override
            public Changes changes() {
                return elsewhere(Changes.class);
            }
        };
    }

    @Override
    public Files files() {
        return elsewhere(Files.class);
    }

    @Override
    public Ports ports() {
        return elsewhere(Ports.class);
    }

    @Override
    public Forks forks() {
        return elsewhere(Forks.class);
    }

    @Override
    public Sessions sessions() {
        return elsewhere(Sessions.class);
    }

    @Override
    public Snapshots snapshots() {
        return elsewhere(Snapshots.class);
    }

    /** What is inside sandboxes is tested over the real core: see {@link InsideServer}. */
    private static <T> T elsewhere(Class<T> type) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (_, method, _) -> {
            throw new UnsupportedOperationException(method.getName() + ": this fake has nothing inside its sandboxes");
        }));
    }

    @Override
    public Templates templates() {
        return new OneTemplate(template);
    }

    @Override
    public BuildUploads uploads() {
        throw new UnsupportedOperationException("no uploads here");
    }

    @Override
    public Images images() {
        throw new UnsupportedOperationException("no images here");
    }

    @Override
    public Registries registries() {
        throw new UnsupportedOperationException("no registries here");
    }

    @Override
    public ServerStatus status() {
        return new ServerStatus(
                nodeConnected,
                nodeConnected,
                false,
                nodeConnected ? Optional.empty() : Optional.of("connection refused"),
                Optional.empty(),
                List.of(new ServerStatus.PoolStatus(
                        "python",
                        4,
                        3,
                        1,
                        2,
                        Optional.of(new ServerStatus.PoolStatus.Golden(
                                new SnapshotId(new UUID(0x4000, Long.MIN_VALUE + 1)), 5_000_000)),
                        10,
                        Map.of("empty", 2L),
                        Map.of("restored", 9L, "started", 1L),
                        Map.of("internal", 1L),
                        95_000_000,
                        Optional.empty())),
                sandboxes.size(),
                (int) sandboxes.values().stream()
                        .filter(s -> s.state() == SandboxState.PAUSED)
                        .count(),
                0,
                0);
    }
}
