package atoll.core.execution;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.Caller;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.Metrics;
import atoll.core.Page;
import atoll.core.PageRequest;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.Settings;
import atoll.core.node.ExecutionSpec;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeExecution;
import atoll.core.node.NodeStream;
import atoll.core.node.PatientNode;
import atoll.core.sandbox.Context;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxService;
import atoll.core.sandbox.SandboxState;
import atoll.core.store.OnceByKey;
import atoll.core.store.Store;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiConsumer;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/** Runs code, keeps its record, and follows what an earlier life of the server left running. */
public final class ExecutionService implements CodeExecution, Executions {
    private static final System.Logger LOG = System.getLogger(ExecutionService.class.getName());
    /** How much of the code is kept on record. */
    static final int RECORDED_CODE = 64 * 1024;

    private static final String OPERATION = "code_exec";
    /** What has been begun is with the node after so long at most; a busy machine takes its time. */
    private static final Duration LONGEST_WAY_TO_NODE = Duration.ofSeconds(30);

    private static final Duration WAY_TO_NODE = Duration.ofMillis(20);

    private final SandboxService sandboxes;
    private final TemplateCatalog templates;
    private final Store store;
    private final PatientNode node;
    private final Settings settings;
    private final InstantSource clock;
    private final Metrics metrics;
    private final Executor background;
    private final BiConsumer<ProjectId, String> usage;
    private final Forgetter<ExecutionId> forgetter;

    /** Those that this server follows. */
    private final Map<ExecutionId, Following> following = new ConcurrentHashMap<>();

    /** Paused sandboxes with executions on record that the node did not name. */
    private final Set<SandboxId> postponed = ConcurrentHashMap.newKeySet();

    private final AtomicLong begun = new AtomicLong();

    private final Instant startedAt;

    private final OnceByKey once = new OnceByKey();

    public ExecutionService(
            SandboxService sandboxes,
            TemplateCatalog templates,
            Store store,
            PatientNode node,
            Settings settings,
            InstantSource clock,
            Metrics metrics,
            Executor background,
            BiConsumer<ProjectId, String> usage) {
        this.usage = usage;
        this.sandboxes = sandboxes;
        this.templates = templates;
        this.store = store;
        this.node = node;
        this.settings = settings;
        this.clock = clock;
        this.metrics = metrics;
        this.background = background;
        this.startedAt = clock.instant();
        this.forgetter = new Forgetter<>(node::forgetExecutions, background);
    }

    @Override
    public ExecutionHandle start(Caller caller, CodeExecRequest request) throws InterruptedException {
        return start(caller, request, false);
    }

    @Override
    public ExecutionHandle startInBackground(Caller caller, CodeExecRequest request) throws InterruptedException {
        return start(caller, request, true);
    }

    private ExecutionHandle start(Caller caller, CodeExecRequest request, boolean confirm) throws InterruptedException {
        caller.require(Scope.EXECUTE);
        checkTimeout(request);
        if (request.idempotencyKey().isEmpty()) {
            return startNew(caller, request, ExecutionId.random(), confirm);
        }
        return startOnce(caller, request, request.idempotencyKey().get(), confirm);
    }

    private ExecutionHandle startOnce(Caller caller, CodeExecRequest request, String key, boolean confirm)
            throws InterruptedException {
        try (OnceByKey.Turn turn = once.begin(caller.project(), key)) {
            ExecutionId id = ExecutionId.parse(turn.claim(
                    store, OPERATION, asked(request), ExecutionId.random().toString(), clock.instant()));
            // Without a record the first try never reached the node: this one is the first that does.
            return store.execution(id).isPresent() ? attach(caller, id) : startNew(caller, request, id, confirm);
        }
    }

    /** What makes two requests the same. */
    private static List<Object> asked(CodeExecRequest request) {
        List<Object> all = new ArrayList<>(List.of(
                request.code(),
                request.template(),
                request.language(),
                request.sandboxId(),
                request.contextId(),
                request.timeout(),
                new TreeMap<>(request.env()),
                request.limits(),
                new TreeMap<>(request.labels())));
        if (request.listFiles()) {
            all.add("list_files");
        }
        return all;
    }

    private ExecutionHandle startNew(Caller caller, CodeExecRequest request, ExecutionId id, boolean confirm)
            throws InterruptedException {
        Optional<Language> language = request.language().map(Language::parse);
        LiveSandbox sandbox;
        Context context;
        if (request.sandboxId().isPresent()) {
            sandbox = sandboxes.requireRunning(caller, request.sandboxId().get());
            context = request.contextId().isPresent()
                    ? sandboxes.context(sandbox, request.contextId().get(), language)
                    : sandboxes.context(sandbox, language);
        } else {
            Template template =
                    sandboxes.ready(caller, templates.choose(caller.project(), request.template(), language));
            Language chosen = templates.choose(caller.project(), template, language);
            sandbox = sandboxes.take(caller, template, request.limits(), Map.of(), request.labels());
            context = sandboxes.context(sandbox, Optional.of(chosen));
        }
        return run(sandbox, context, request, id, confirm);
    }

    private ExecutionHandle run(
            LiveSandbox sandbox, Context context, CodeExecRequest request, ExecutionId id, boolean confirm)
            throws InterruptedException {
        ExecutionRecord record = new ExecutionRecord(
                id,
                context.project(),
                sandbox.id(),
                context.id(),
                context.language(),
                recordedCode(request.code()),
                Variables.utf8Bytes(request.code()),
                clock.instant(),
                Optional.empty());
        long number = sandbox.nextNumber(context.id(), () -> before(context));
        store.saveExecutionLater(record, () -> {});
        usage.accept(record.project(), sandbox.sandbox().template());
        if (request.idempotencyKey().isPresent()) {
            store.flush();
        }
        Duration timeout = request.timeout()
                .orElseGet(() -> templates
                        .ofRecord(
                                sandbox.sandbox().template(), sandbox.sandbox().templateVersion())
                        .timeout());
        ExecutionSpec spec = new ExecutionSpec(
                id, context.id(), request.code(), timeout, request.env(), request.listFiles(), confirm);
        RunningExecution execution = follow(record, sandbox.box(), sandbox, context, spec);
        execution.numbered(number);
        if (confirm) {
            execution.beginAccepted();
        } else {
            execution.begin();
        }
        return execution;
    }

    /** How many executions of a context there were before this server began to count; none where it is younger than the server. */
    private long before(Context context) {
        if (!context.createdAt().isBefore(startedAt)) {
            return 0;
        }
        long count = 0;
        Optional<String> cursor = Optional.empty();
        do {
            Page<ExecutionRecord> page = store.executions(
                    context.project(),
                    new ExecutionQuery(
                            Optional.of(context.sandboxId()),
                            Optional.of(context.id()),
                            Optional.empty(),
                            new PageRequest(PageRequest.MAX_LIMIT, cursor)));
            count += page.items().size();
            cursor = page.next();
        } while (cursor.isPresent());
        return count;
    }

    private RunningExecution follow(
            ExecutionRecord record,
            BoxId box,
            @Nullable LiveSandbox sandbox,
            @Nullable Context context,
            @Nullable ExecutionSpec spec) {
        Following source = new Following(record, box, sandbox, context, spec, begun.incrementAndGet());
        following.put(record.id(), source);
        return new RunningExecution(record.id(), record.sandboxId(), record.contextId(), source, node, background);
    }

    private void checkTimeout(CodeExecRequest request) {
        request.timeout().ifPresent(timeout -> {
            if (timeout.compareTo(settings.maxTimeout()) > 0) {
                throw AtollException.invalid(
                        "timeout: " + timeout.toSeconds() + " s (expected: at most "
                                + settings.maxTimeout().toSeconds() + " s)",
                        "Run it in the background of the sandbox, or raise execution.max_timeout_seconds.");
            }
        });
    }

    private static String recordedCode(String code) {
        if (code.length() <= RECORDED_CODE) {
            return code;
        }
        int end = Character.isHighSurrogate(code.charAt(RECORDED_CODE - 1)) ? RECORDED_CODE - 1 : RECORDED_CODE;
        return code.substring(0, end);
    }

    @Override
    public ExecutionRecord get(Caller caller, ExecutionId id) {
        caller.require(Scope.READ);
        return store.execution(id)
                .filter(record -> record.project().equals(caller.project()))
                .orElseThrow(() -> new AtollException(
                        ErrorCode.EXECUTION_NOT_FOUND,
                        "execution: " + id + " was not found",
                        "There is none of that id in this project, or its record was removed by retention.",
                        "GET /v1/executions lists those that are there."));
    }

    @Override
    public Page<ExecutionRecord> list(Caller caller, ExecutionQuery query) {
        caller.require(Scope.READ);
        return store.executions(caller.project(), query);
    }

    @Override
    public ExecutionHandle attach(Caller caller, ExecutionId id) throws InterruptedException {
        ExecutionRecord record = get(caller, id);
        BoxId box = box(record);
        return new RunningExecution(
                id, record.sandboxId(), record.contextId(), new Watching(record, box), node, background);
    }

    @Override
    public void interrupt(Caller caller, ExecutionId id) {
        caller.require(Scope.EXECUTE);
        ExecutionRecord record = get(caller, id);
        if (record.outcome().isEmpty()) {
            interrupt(box(record), id);
        }
    }

    @Override
    public Optional<ExecutionId> interruptContext(Caller caller, SandboxId sandboxId, ContextId contextId) {
        LiveSandbox sandbox = sandboxes.requireRunning(caller, sandboxId);
        Context context = sandboxes.context(sandbox, contextId, Optional.empty());
        // A context runs one after another: the oldest is the one that runs.
        Optional<Following> current = following.values().stream()
                .filter(one -> one.record.contextId().equals(context.id()))
                .min(Comparator.comparing((Following one) -> one.record.createdAt())
                        .thenComparingLong(one -> one.number));
        current.ifPresent(one -> interrupt(sandbox.box(), one.record.id()));
        return current.map(one -> one.record.id());
    }

    private void interrupt(BoxId box, ExecutionId id) {
        if (!isInterrupted(box, id)) {
            // What was begun a moment ago may be on its way to the node yet.
            background.execute(() -> interruptOnceThere(box, id));
        }
    }

    private void interruptOnceThere(BoxId box, ExecutionId id) {
        long until = System.nanoTime() + LONGEST_WAY_TO_NODE.toNanos();
        try {
            do {
                Thread.sleep(WAY_TO_NODE);
            } while (System.nanoTime() < until && !isInterrupted(box, id));
        } catch (AtollException e) {
            LOG.log(System.Logger.Level.WARNING, "execution {0} was not interrupted: {1}", id, e.message());
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }

    /** False where the node does not know it, though it has not ended. */
    private boolean isInterrupted(BoxId box, ExecutionId id) {
        try {
            node.interrupt(box, id);
            return true;
        } catch (AtollException e) {
            if (e.code() != ErrorCode.NOT_FOUND && e.code() != ErrorCode.CONFLICT) {
                throw e;
            }
            return e.code() == ErrorCode.CONFLICT || !following.containsKey(id);
        }
    }

    @Override
    public OutputReader read(Caller caller, ExecutionId id, StandardStream stream, long offset, boolean follow) {
        ExecutionRecord record = get(caller, id);
        Optional<WholeRecord> whole = record.outcome().flatMap(WholeRecord::of);
        if (whole.isPresent()) {
            return whole.get().read(stream, offset);
        }
        try {
            BoxId box = box(record);
            return new SpoolReader(id, offset, new SpoolReader.Source() {
                @Override
                public OutputReader onNode(long from) {
                    return node.readOutput(box, id, stream, from, follow);
                }

                @Override
                public Optional<OutputReader> onRecord(long from) {
                    return wholeRecord(id).map(recorded -> recorded.read(stream, from));
                }

                @Override
                public boolean starting() {
                    return isUnderWay(id);
                }
            });
        } catch (AtollException e) {
            throw SpoolReader.translated(e, id);
        }
    }

    /** As it is by now: whoever was told that the node has no such execution may have asked just before its record was written. */
    private Optional<WholeRecord> wholeRecord(ExecutionId id) {
        return store.execution(id).flatMap(ExecutionRecord::outcome).flatMap(WholeRecord::of);
    }

    /** Whether it is followed here and has not ended; its node may not know of it yet. */
    private boolean isUnderWay(ExecutionId id) {
        return following.containsKey(id)
                && store.execution(id).flatMap(ExecutionRecord::outcome).isEmpty();
    }

    private BoxId box(ExecutionRecord record) {
        return sandboxes
                .live(record.sandboxId())
                .map(LiveSandbox::sandbox)
                .or(() -> store.sandbox(record.sandboxId()))
                .map(Sandbox::box)
                .orElseThrow(() -> SpoolReader.expired(record.id()));
    }

    /** Whether code runs in this context, or waits for it. */
    public boolean isBusy(ContextId context) {
        return following.values().stream()
                .anyMatch(one -> one.record.contextId().equals(context));
    }

    /** The sandboxes in which code runs, or waits for its context. */
    public Set<SandboxId> busySandboxes() {
        return following.values().stream().map(one -> one.record.sandboxId()).collect(Collectors.toSet());
    }

    /** What was not sure about its executions while it was paused is looked at. */
    public void resumed(SandboxId sandbox) {
        if (postponed.remove(sandbox)) {
            background.execute(this::reconcileAgain);
        }
    }

    private void reconcileAgain() {
        try {
            reconcile();
        } catch (AtollException e) {
            // Away: it is compared again on the next connection.
            System.getLogger(ExecutionService.class.getName())
                    .log(System.Logger.Level.DEBUG, "executions are looked at later: " + e.getMessage());
        }
    }

    private boolean standsStill(SandboxId sandbox) {
        return sandboxes.live(sandbox).map(LiveSandbox::sandbox).map(Sandbox::state).stream()
                .anyMatch(SandboxState::standsStill);
    }

    /** Executions that this server follows at the moment. */
    public int runningNow() {
        return following.size();
    }

    /**
     * Takes over what the node holds and what the store has without an end. Those that ran while no server was there are read from
     * their spools, in the background.
     */
    public void reconcile() {
        List<NodeExecution> held = node.executions();
        Map<ExecutionId, NodeExecution> onNode = new TreeMap<>(Comparator.comparing(ExecutionId::uuid));
        for (NodeExecution execution : held) {
            onNode.put(execution.id(), execution);
            if (!following.containsKey(execution.id())) {
                takeOver(execution);
            }
        }
        for (ExecutionRecord record : store.runningExecutions()) {
            if (!onNode.containsKey(record.id()) && !following.containsKey(record.id())) {
                giveUp(record);
            }
        }
    }

    private void takeOver(NodeExecution execution) {
        Optional<ExecutionRecord> known = store.execution(execution.id());
        Optional<ExecutionOutcome> recorded = known.flatMap(ExecutionRecord::outcome);
        if (recorded.isPresent()) {
            if (!execution.running()) {
                forget(execution.id(), recorded.get());
            }
            return;
        }
        Optional<ExecutionRecord> record = known.or(() -> fromNode(execution));
        if (record.isEmpty()) {
            // Of a sandbox that nobody knows: it goes with its box.
            return;
        }
        RunningExecution alone = follow(record.get(), execution.box(), null, null, null);
        background.execute(alone::finishAlone);
    }

    /** The record of an execution whose first row was lost with the server. */
    private Optional<ExecutionRecord> fromNode(NodeExecution execution) {
        return execution.sandboxId().flatMap(store::sandbox).map(sandbox -> {
            Language language = store.contexts(sandbox.id()).stream()
                    .filter(context -> context.id().equals(execution.contextId()))
                    .map(Context::language)
                    .findFirst()
                    .orElseGet(() -> templates
                            .ofRecord(sandbox.template(), sandbox.templateVersion())
                            .defaultLanguage()
                            .orElse(Language.BASH));
            return new ExecutionRecord(
                    execution.id(),
                    sandbox.project(),
                    sandbox.id(),
                    execution.contextId(),
                    language,
                    "",
                    0,
                    clock.instant(),
                    Optional.empty());
        });
    }

    private void giveUp(ExecutionRecord record) {
        // It may have ended since the list was made.
        if (store.execution(record.id()).flatMap(ExecutionRecord::outcome).isPresent()) {
            return;
        }
        if (standsStill(record.sandboxId())) {
            // Nobody can tell before it is resumed.
            postponed.add(record.sandboxId());
            return;
        }
        Optional<Sandbox> sandbox = store.sandbox(record.sandboxId());
        Optional<Sandbox.End> end = sandbox.flatMap(Sandbox::end);
        ExitReason reason = end.isPresent() ? ExitReason.SANDBOX_ENDED : ExitReason.LOST;
        String detail = end.map(how -> "The sandbox ended: " + how.detail())
                .orElse("The node does not know this execution: the server stopped before it was started there, "
                        + "or the machine was restarted.");
        ExecutionOutcome outcome = new Transcript()
                .finish(
                        record.id(),
                        record.sandboxId(),
                        record.contextId(),
                        RunningExecution.madeUp(reason, detail, record.createdAt()));
        save(record, outcome);
    }

    private void save(ExecutionRecord record, ExecutionOutcome outcome) {
        ExecutionOutcome recorded = Transcript.forRecord(outcome);
        ExecutionRecord finished = new ExecutionRecord(
                record.id(),
                record.project(),
                record.sandboxId(),
                record.contextId(),
                record.language(),
                record.code(),
                record.codeBytes(),
                record.createdAt(),
                Optional.of(recorded));
        store.saveExecutionLater(finished, () -> forget(record.id(), recorded));
        metrics.executionEnded(
                record.language(),
                outcome.exitReason(),
                outcome.duration(),
                outcome.stdout().totalBytes() + outcome.stderr().totalBytes());
    }

    /** Its output stays readable: on the node, or here where the record has all of it. */
    private void forget(ExecutionId id, ExecutionOutcome recorded) {
        forgetter.forget(id, WholeRecord.of(recorded).isEmpty());
    }

    /** How an execution ended whose box can't be asked any more. */
    private NodeEvent.Finish endedWithoutNode(SandboxId sandboxId, Instant startedAt, AtollException e) {
        Optional<Sandbox.End> end = sandboxes
                .live(sandboxId)
                .map(LiveSandbox::sandbox)
                .or(() -> store.sandbox(sandboxId))
                .flatMap(Sandbox::end);
        return end.map(how -> RunningExecution.madeUp(
                        how.reason() == EndReason.OUT_OF_MEMORY ? ExitReason.OUT_OF_MEMORY : ExitReason.SANDBOX_ENDED,
                        "The sandbox ended: " + how.detail(),
                        startedAt))
                .orElseGet(() -> RunningExecution.madeUp(
                        ExitReason.LOST, "The node can't tell any more: " + e.message(), startedAt));
    }

    /** An execution that is this server's to record. */
    private final class Following implements RunningExecution.Source {
        private final ExecutionRecord record;
        private final BoxId box;
        private final @Nullable LiveSandbox sandbox;
        private final @Nullable Context context;
        /** Null for one that an earlier server started. */
        private final @Nullable ExecutionSpec spec;

        /** Grows from one to the next. */
        private final long number;

        private boolean contextReopened;

        Following(
                ExecutionRecord record,
                BoxId box,
                @Nullable LiveSandbox sandbox,
                @Nullable Context context,
                @Nullable ExecutionSpec spec,
                long number) {
            this.record = record;
            this.box = box;
            this.sandbox = sandbox;
            this.context = context;
            this.spec = spec;
            this.number = number;
        }

        @Override
        public NodeStream<NodeEvent> open() {
            return spec == null ? node.attach(box, record.id(), 0) : node.execute(box, spec);
        }

        @Override
        public NodeStream<NodeEvent> openAfter(long seq) {
            return node.attach(box, record.id(), seq);
        }

        @Override
        public void interrupt() {
            ExecutionService.this.interrupt(box, record.id());
        }

        @Override
        public NodeEvent.Finish broken(AtollException e, boolean begun) {
            // The newer server has its record to write, not this one.
            node.requireOwned(e);
            if (sandbox == null || context == null || begun) {
                if (e.code() != ErrorCode.NOT_FOUND && e.code() != ErrorCode.CONFLICT) {
                    throw e;
                }
                if (sandbox != null && sandboxes.translated(sandbox, e) == e) {
                    return RunningExecution.madeUp(ExitReason.LOST, e.message(), record.createdAt());
                }
                return endedWithoutNode(record.sandboxId(), record.createdAt(), e);
            }
            RuntimeException told = sandboxes.translated(sandbox, e);
            ExecutionOutcome never = new Transcript()
                    .finish(
                            record.id(),
                            record.sandboxId(),
                            record.contextId(),
                            RunningExecution.madeUp(
                                    told == e ? ExitReason.LOST : ExitReason.SANDBOX_ENDED,
                                    "It was not run: " + told.getMessage(),
                                    record.createdAt()));
            save(record, never);
            throw told;
        }

        @Override
        public boolean repaired(AtollException e) {
            if (e.code() != ErrorCode.NOT_FOUND || sandbox == null || context == null || contextReopened) {
                return false;
            }
            contextReopened = true;
            try {
                sandboxes.reopen(sandbox, context);
                return true;
            } catch (AtollException stillBroken) {
                return false;
            }
        }

        @Override
        public void ended(ExecutionOutcome outcome) {
            save(record, outcome);
            sandboxes.live(record.sandboxId()).ifPresent(sandboxes::touch);
            following.remove(record.id());
        }

        @Override
        public void abandoned() {
            following.remove(record.id());
        }
    }

    /** An execution that someone looks at, while another records it or after it was recorded. */
    private final class Watching implements RunningExecution.Source {
        private final ExecutionRecord record;
        private final BoxId box;

        private final long begun = System.nanoTime();
        /** Set where nobody else need be asked. */
        private Optional<WholeRecord> whole;

        Watching(ExecutionRecord record, BoxId box) {
            this.record = record;
            this.box = box;
            this.whole = record.outcome().flatMap(WholeRecord::of);
        }

        @Override
        public NodeStream<NodeEvent> open() {
            return whole.isPresent() ? whole.get().events() : node.attach(box, record.id(), 0);
        }

        @Override
        public NodeStream<NodeEvent> openAfter(long seq) {
            return node.attach(box, record.id(), seq);
        }

        @Override
        public void interrupt() {
            ExecutionService.this.interrupt(box, record.id());
        }

        @Override
        public NodeEvent.Finish broken(AtollException e, boolean begun) {
            throw SpoolReader.translated(e, record.id());
        }

        @Override
        public boolean repaired(AtollException e) {
            if (e.code() != ErrorCode.NOT_FOUND || whole.isPresent()) {
                return false;
            }
            boolean starting = isUnderWay(record.id()) && SpoolReader.isEarly(begun);
            whole = wholeRecord(record.id());
            if (whole.isEmpty() && starting) {
                return paused();
            }
            return whole.isPresent();
        }

        private static boolean paused() {
            try {
                Thread.sleep(SpoolReader.PAUSE);
                return true;
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return false;
            }
        }

        @Override
        public void ended(ExecutionOutcome outcome) {}

        @Override
        public void abandoned() {}
    }
}
