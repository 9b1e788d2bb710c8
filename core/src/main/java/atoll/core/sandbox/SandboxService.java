package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.Caller;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.Metrics;
import atoll.core.Page;
import atoll.core.ProcessId;
import atoll.core.ProjectId;
import atoll.core.RunId;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.node.Box;
import atoll.core.node.BoxAssignment;
import atoll.core.node.ContextSpec;
import atoll.core.node.Node;
import atoll.core.node.NodeContext;
import atoll.core.pool.Pools;
import atoll.core.pool.Taken;
import atoll.core.process.StartProcess;
import atoll.core.store.Event;
import atoll.core.store.OnceByKey;
import atoll.core.store.Store;
import atoll.core.template.LimitBounds;
import atoll.core.template.LimitChanges;
import atoll.core.template.Limits;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.Collection;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.IntSupplier;

/**
 * The life of sandboxes. What is to happen is stored before it is done: a crash in between is undone or finished on the next start
 * (see {@code Recovery}). Live sandboxes are kept in memory, ended ones are read from the store.
 */
public final class SandboxService implements Sandboxes {
    private static final System.Logger LOG = System.getLogger(SandboxService.class.getName());
    /** How long a delete waits for the node before it lets the node finish alone. */
    private static final long DELETE_WAIT_MILLIS = 2_000;

    private static final int TAKE_TRIES = 3;
    /** What a node answers when the box has ended, and at other times too. */
    private static final Set<ErrorCode> MAYBE_ENDED =
            EnumSet.of(ErrorCode.NOT_FOUND, ErrorCode.CONFLICT, ErrorCode.FILE_NOT_FOUND, ErrorCode.FILE_CONFLICT);

    private static final String OPERATION = "create_sandbox";

    /** Starts the main process of a sandbox that is being made. */
    @FunctionalInterface
    public interface MainStarter {
        void start(LiveSandbox sandbox, ProcessId id, StartProcess process);
    }

    private final Store store;
    private final Node node;
    private final Pools pools;
    private final TemplateCatalog templates;
    private final InstantSource clock;
    private final Metrics metrics;
    private final Executor background;
    private final LimitBounds bounds;
    private final IntSupplier maxPerProject;
    private final MainStarter mainStarter;
    private final OnceByKey once = new OnceByKey();
    private final Map<SandboxId, LiveSandbox> live = new ConcurrentHashMap<>();

    public SandboxService(
            Store store,
            Node node,
            Pools pools,
            TemplateCatalog templates,
            InstantSource clock,
            Metrics metrics,
            Executor background,
            LimitBounds bounds,
            IntSupplier maxPerProject,
            MainStarter mainStarter) {
        this.store = store;
        this.node = node;
        this.pools = pools;
        this.templates = templates;
        this.clock = clock;
        this.metrics = metrics;
        this.background = background;
        this.bounds = bounds;
        this.maxPerProject = maxPerProject;
        this.mainStarter = mainStarter;
    }

    /** Reads what was live when the server stopped. */
    public void load() {
        for (Sandbox sandbox : store.liveSandboxes()) {
            LiveSandbox loaded = new LiveSandbox(sandbox);
            store.contexts(sandbox.id()).forEach(loaded::add);
            live.put(sandbox.id(), loaded);
        }
    }

    @Override
    public Sandbox create(Caller caller, CreateSandbox request) throws InterruptedException {
        Optional<Language> language = request.language().map(Language::parse);
        Template template = templates.choose(request.template(), language);
        Language chosen = templates.choose(template, language);
        if (request.idempotencyKey().isPresent()) {
            return createOnce(caller, request, request.idempotencyKey().get(), template, chosen);
        }
        return make(caller, request, template, chosen, SandboxId.random(), TAKE_TRIES);
    }

    private Sandbox make(
            Caller caller, CreateSandbox request, Template template, Language chosen, SandboxId id, int mostTries)
            throws InterruptedException {
        LiveSandbox made = take(
                caller,
                template,
                request.limits(),
                request.env(),
                request.labels(),
                request.main().map(main -> new MainProcess(ProcessId.random(), main.endsSandbox())),
                id,
                mostTries);
        open(made, template, chosen);
        request.main().ifPresent(main -> startMain(made, main.process()));
        return made.sandbox();
    }

    /** A sandbox without the process that it is for is none: it ends, and its caller is told why. */
    private void startMain(LiveSandbox made, StartProcess main) {
        try {
            mainStarter.start(made, made.sandbox().main().orElseThrow().id(), main);
        } catch (RuntimeException e) {
            undo(made, "Its main process could not be started: " + e.getMessage());
            throw e;
        } finally {
            made.mainPending = false;
        }
    }

    private void undo(LiveSandbox made, String why) {
        Sandbox ended = end(made, EndReason.START_FAILED, why, OptionalInt.empty());
        assert ended.end().isPresent();
        CompletableFuture<Void> removed = removeBox(made.box());
        assert removed != null;
    }

    private void open(LiveSandbox made, Template template, Language chosen) throws InterruptedException {
        if (chosen != template.defaultLanguage()) {
            Context opened = context(made, Optional.of(chosen));
            assert opened.language() == chosen;
        }
    }

    private Sandbox createOnce(Caller caller, CreateSandbox request, String key, Template template, Language chosen)
            throws InterruptedException {
        caller.require(Scope.EXECUTE);
        try (OnceByKey.Turn turn = once.begin(caller.project(), key)) {
            SandboxId id = SandboxId.parse(turn.claim(
                    store, OPERATION, request.parts(), SandboxId.random().toString(), clock.instant()));
            LiveSandbox alive = live.get(id);
            Optional<Sandbox> there = alive != null ? Optional.of(alive.sandbox()) : store.sandbox(id);
            if (there.isPresent()) {
                return there.get();
            }
            return make(caller, request, template, chosen, id, 1);
        }
    }

    @Override
    public Sandbox get(Caller caller, SandboxId id) {
        caller.require(Scope.READ);
        return owned(caller, id);
    }

    @Override
    public Page<Sandbox> list(Caller caller, SandboxQuery query) {
        caller.require(Scope.READ);
        return store.sandboxes(caller.project(), query);
    }

    @Override
    public Sandbox update(Caller caller, SandboxId id, UpdateSandbox changes) {
        caller.require(Scope.EXECUTE);
        changes.limits().requireChangeable();
        LiveSandbox alive = requireRunning(caller, id);
        alive.revision.lock();
        try {
            Sandbox before = alive.sandbox();
            Limits limits = changes.limits().applyTo(before.limits());
            if (!limits.equals(before.limits())) {
                Limits checked = bounds.check(limits);
                assert checked.equals(limits);
            }
            revise(alive, limits, Labels.changed(before.labels(), changes.labels()));
            if (!limits.equals(before.limits())) {
                enforce(alive, before);
            }
            event(alive.sandbox(), "sandbox.updated", "");
            return alive.sandbox();
        } finally {
            alive.revision.unlock();
        }
    }

    private void revise(LiveSandbox alive, Limits limits, Map<String, String> labels) {
        alive.writer.lock();
        try {
            if (alive.sandbox().state() != SandboxState.RUNNING) {
                throw endedError(alive.sandbox());
            }
            Sandbox revised = alive.sandbox().revised(limits, labels);
            store.reviseSandbox(revised);
            alive.becomes(revised);
        } finally {
            alive.writer.unlock();
        }
    }

    /** Has the node do what the record says; if it can't, the record says what was {@code before}. */
    private void enforce(LiveSandbox alive, Sandbox before) {
        try {
            Box box = node.updateLimits(alive.box(), alive.sandbox().limits());
            assert box.id().equals(alive.box());
        } catch (RuntimeException e) {
            RuntimeException told = translated(alive, e);
            if (alive.sandbox().state() == SandboxState.RUNNING) {
                revise(alive, before.limits(), before.labels());
            }
            if (told instanceof AtollException known && known.code() == ErrorCode.CONFLICT) {
                throw new AtollException(
                        ErrorCode.CONFLICT,
                        "limits: they were not changed: " + known.message(),
                        known.reason(),
                        "A limit can't be set below what is in use: free some of it, or ask for more.",
                        e);
            }
            throw told;
        }
    }

    /** Makes up for a change of limits that was stored and perhaps not done. */
    public void align(LiveSandbox sandbox, Limits seen) {
        Limits wanted = sandbox.sandbox().limits();
        if (sandbox.sandbox().state() != SandboxState.RUNNING || !wanted.changeableTo(seen) || wanted.equals(seen)) {
            return;
        }
        background.execute(() -> {
            sandbox.revision.lock();
            try {
                Box box = node.updateLimits(sandbox.box(), sandbox.sandbox().limits());
                assert box.id().equals(sandbox.box());
            } catch (AtollException e) {
                LOG.log(
                        System.Logger.Level.WARNING,
                        "sandbox " + sandbox.id() + " could not get the limits that are on record: " + e.message());
            } finally {
                sandbox.revision.unlock();
            }
        });
    }

    @Override
    public Sandbox delete(Caller caller, SandboxId id) throws InterruptedException {
        caller.require(Scope.EXECUTE);
        Sandbox sandbox = owned(caller, id);
        LiveSandbox alive = live.get(id);
        if (alive == null) {
            return sandbox;
        }
        Sandbox ended = end(alive, EndReason.DELETED, "Deleted by key " + caller.key() + ".", OptionalInt.empty());
        CompletableFuture<Void> deletion = removeBox(sandbox.box());
        try {
            deletion.get(DELETE_WAIT_MILLIS, TimeUnit.MILLISECONDS);
        } catch (ExecutionException | TimeoutException e) {
            // It is deleted as far as anybody can see; the node is told again by removeBox and by the next
            // reconciliation.
            LOG.log(System.Logger.Level.INFO, "box of sandbox " + id + " is still being removed: " + e.getMessage());
        }
        return ended;
    }

    /** The one place that decides whose sandbox it is: another project's does not exist. */
    private Sandbox owned(Caller caller, SandboxId id) {
        LiveSandbox alive = live.get(id);
        Optional<Sandbox> found = alive != null ? Optional.of(alive.sandbox()) : store.sandbox(id);
        return found.filter(sandbox -> sandbox.project().equals(caller.project()))
                .orElseThrow(() -> new AtollException(
                        ErrorCode.SANDBOX_NOT_FOUND,
                        "sandbox: " + id + " was not found",
                        "There is none of that id in this project, or it ended so long ago that its record was removed.",
                        "Leave sandbox_id out to get a new sandbox."));
    }

    /** A sandbox that code can run in; fails with the stored reason if it has ended. */
    public LiveSandbox requireRunning(Caller caller, SandboxId id) {
        caller.require(Scope.EXECUTE);
        Sandbox sandbox = owned(caller, id);
        LiveSandbox alive = live.get(id);
        if (alive != null && sandbox.state() == SandboxState.RUNNING) {
            return alive;
        }
        if (sandbox.state() == SandboxState.CREATING) {
            throw new AtollException(
                    ErrorCode.CONFLICT,
                    "sandbox: " + id + " is still being made",
                    "",
                    "Wait for the call that makes it.");
        }
        throw endedError(alive == null ? owned(caller, id) : alive.sandbox());
    }

    /** What a caller is told who wants to use a sandbox that has ended. */
    public static AtollException endedError(Sandbox sandbox) {
        String why = sandbox.end()
                .map(end -> end.reason().text() + " at " + end.at() + ". " + end.detail())
                .orElse("");
        return new AtollException(
                ErrorCode.SANDBOX_ENDED,
                "sandbox: " + sandbox.id() + " has ended: " + why,
                why,
                "Leave sandbox_id out to get a new sandbox; the state of this one is gone.");
    }

    /** A new sandbox: from the pool if it has a box, else as soon as one is started. */
    public LiveSandbox take(
            Caller caller, Template template, LimitChanges changes, Map<String, String> env, Map<String, String> labels)
            throws InterruptedException {
        return take(caller, template, changes, env, labels, Optional.empty(), SandboxId.random(), TAKE_TRIES);
    }

    private LiveSandbox take(
            Caller caller,
            Template template,
            LimitChanges changes,
            Map<String, String> env,
            Map<String, String> labels,
            Optional<MainProcess> main,
            SandboxId first,
            int mostTries)
            throws InterruptedException {
        caller.require(Scope.EXECUTE);
        Limits limits = changes.equals(LimitChanges.NONE)
                ? template.limits()
                : bounds.check(changes.applyTo(template.limits()));
        checkQuota(caller.project());
        long began = System.nanoTime();
        SandboxId id = first;
        for (int tries = 1; ; tries++, id = SandboxId.random()) {
            Taken taken = limits.assignableFrom(template.limits())
                    ? pools.take(template.id())
                    : pools.start(template.id(), limits);
            try {
                LiveSandbox made = assign(id, caller, template, limits, taken.box(), env, labels, main);
                metrics.sandboxTaken(template.id(), taken.from(), Duration.ofNanos(System.nanoTime() - began));
                return made;
            } catch (AtollException e) {
                // The box died while it waited in the pool: that is no reason for the caller to see an error.
                boolean boxGone = e.code() == ErrorCode.NOT_FOUND || e.code() == ErrorCode.CONFLICT;
                if (!boxGone || tries == mostTries) {
                    throw e;
                }
            } finally {
                pools.handedOver(taken.box().id());
            }
        }
    }

    private LiveSandbox assign(
            SandboxId id,
            Caller caller,
            Template template,
            Limits limits,
            Box box,
            Map<String, String> env,
            Map<String, String> labels,
            Optional<MainProcess> main) {
        Instant now = clock.instant();
        Sandbox creating = new Sandbox(
                id,
                caller.project(),
                template.id(),
                SandboxState.CREATING,
                limits,
                labels,
                box.id(),
                RunId.random(),
                main,
                Optional.empty(),
                env,
                Lifecycle.UNBOUND,
                Sandbox.Times.since(now),
                Optional.empty(),
                Optional.empty(),
                now,
                Optional.empty());
        LiveSandbox made = new LiveSandbox(creating);
        made.mainPending = main.isPresent();
        made.underConstruction = true;
        // Those of a box that was restored came with its snapshot.
        Optional<Context> warm = box.contexts().stream()
                .findFirst()
                .map(held -> new Context(held.id(), caller.project(), id, held.language(), true, now));
        warm.ifPresent(made::add);
        live.put(id, made);
        try {
            store.insertSandbox(creating, warm);
            Box assigned = node.assignBox(box.id(), new BoxAssignment(id, id.toString(), env, limits));
            started(made, assigned);
        } catch (RuntimeException e) {
            undo(made, "It could not be started: " + e.getMessage());
            throw e;
        }
        made.underConstruction = false;
        return made;
    }

    private void started(LiveSandbox made, Box assigned) {
        made.writer.lock();
        try {
            if (made.sandbox().state() != SandboxState.CREATING) {
                throw endedError(made.sandbox());
            }
            assert assigned.sandboxId().equals(Optional.of(made.id()));
            made.becomes(made.sandbox().running());
            // Its box carries the sandbox's id now, so a lost write is made up for on the next start.
            store.updateSandboxLater(made.sandbox());
        } finally {
            made.writer.unlock();
        }
        event(made.sandbox(), "sandbox.started", "");
    }

    private void checkQuota(ProjectId project) {
        int most = maxPerProject.getAsInt();
        long there = live.values().stream()
                .filter(alive -> alive.sandbox().project().equals(project))
                .count();
        if (there >= most) {
            throw new AtollException(
                    ErrorCode.QUOTA_EXCEEDED,
                    "sandboxes: " + there + " are live in this project (expected: fewer than " + most + ")",
                    "Each live sandbox takes memory of the machine.",
                    "Delete sandboxes that are not needed, or raise the setting sandboxes.max.");
        }
    }

    /** The context that a call goes to which names at most a language. It is opened if the sandbox has none of that language. */
    public Context context(LiveSandbox sandbox, Optional<Language> language) throws InterruptedException {
        Template template = templates.byId(sandbox.sandbox().template());
        Language chosen = templates.choose(template, language);
        CompletableFuture<Context> mine = new CompletableFuture<>();
        Optional<CompletableFuture<Context>> there = sandbox.defaultContext(chosen, mine);
        if (there.isEmpty()) {
            open(sandbox, chosen, mine);
        }
        try {
            return there.orElse(mine).get();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof AtollException known) {
                throw known;
            }
            throw AtollException.internal("the context could not be opened", e.getCause());
        }
    }

    private void open(LiveSandbox sandbox, Language language, CompletableFuture<Context> mine) {
        Context context = new Context(
                ContextId.random(), sandbox.sandbox().project(), sandbox.id(), language, true, clock.instant());
        try {
            NodeContext opened = node.openContext(sandbox.box(), spec(context));
            assert opened.id().equals(context.id());
            store.insertContextLater(context);
            sandbox.add(context);
            mine.complete(context);
        } catch (RuntimeException e) {
            sandbox.notOpened(language);
            mine.completeExceptionally(translated(sandbox, e));
        }
    }

    /** Opens a context again that the node has lost; its state is gone. */
    public void reopen(LiveSandbox sandbox, Context context) {
        NodeContext opened = node.openContext(sandbox.box(), spec(context));
        assert opened.id().equals(context.id());
    }

    static ContextSpec spec(Context context) {
        return new ContextSpec(context.id(), context.language(), context.cwd(), context.env());
    }

    /** A context by its id; {@code language}, if named too, must be its own. */
    public Context context(LiveSandbox sandbox, ContextId id, Optional<Language> language) {
        Context context = sandbox.context(id)
                .orElseThrow(() -> new AtollException(
                        ErrorCode.CONTEXT_NOT_FOUND,
                        "context: " + id + " was not found in sandbox " + sandbox.id(),
                        "",
                        "Leave context_id out for the sandbox's own context."));
        if (language.isPresent() && language.get() != context.language()) {
            throw AtollException.invalid(
                    "language: " + language.get() + " for context " + id + " (expected: its own, " + context.language()
                            + ")",
                    "Leave out the language or the context.");
        }
        return context;
    }

    /** What a failure of the node means to the caller of this sandbox. */
    public RuntimeException translated(LiveSandbox sandbox, RuntimeException e) {
        if (!(e instanceof AtollException known) || !MAYBE_ENDED.contains(known.code())) {
            return e;
        }
        if (sandbox.sandbox().state() == SandboxState.ENDED) {
            return endedError(sandbox.sandbox());
        }
        Optional<Box> box = node.box(sandbox.box());
        if (box.isEmpty() || box.get().state().isOver()) {
            boxEnded(sandbox, box);
            return endedError(sandbox.sandbox());
        }
        return e;
    }

    /** The body of a live sandbox is gone: so is the sandbox. */
    public void boxEnded(LiveSandbox sandbox, Optional<Box> box) {
        Optional<Box.End> how = box.flatMap(Box::end);
        Sandbox ended = end(
                sandbox,
                how.map(Box.End::reason).orElse(EndReason.LOST),
                how.map(Box.End::detail)
                        .filter(detail -> !detail.isBlank())
                        .orElse(
                                "Its body was not on the node any more: the machine was restarted, or someone removed it."),
                OptionalInt.empty());
        assert ended.state() == SandboxState.ENDED;
        if (box.isPresent()) {
            CompletableFuture<Void> removed = removeBox(sandbox.box());
            assert removed != null;
        }
    }

    /** Its main process ended, and was to end it. Nothing happens if it has ended for another reason. */
    public void mainExited(LiveSandbox sandbox, OptionalInt exitCode, String detail) {
        Sandbox ended = end(sandbox, EndReason.MAIN_EXITED, detail, exitCode);
        assert ended.state() == SandboxState.ENDED;
        CompletableFuture<Void> removed = removeBox(sandbox.box());
        assert removed != null;
    }

    /** A sandbox of any state, for those who look after what was in it. */
    public Optional<Sandbox> find(SandboxId id) {
        LiveSandbox alive = live.get(id);
        return alive != null ? Optional.of(alive.sandbox()) : store.sandbox(id);
    }

    /** Takes it to its end, once; returns it as it ended. */
    private Sandbox end(LiveSandbox alive, EndReason reason, String detail, OptionalInt exitCode) {
        alive.writer.lock();
        try {
            if (alive.sandbox().state() == SandboxState.ENDED) {
                return alive.sandbox();
            }
            Sandbox ended = alive.sandbox().ended(new Sandbox.End(reason, detail, clock.instant(), exitCode));
            store.updateSandbox(ended);
            alive.becomes(ended);
            live.remove(alive.id());
        } finally {
            alive.writer.unlock();
        }
        metrics.sandboxEnded(alive.sandbox().template(), reason.text());
        event(alive.sandbox(), "sandbox.ended", reason.text());
        return alive.sandbox();
    }

    /** A sandbox was found alive on the node whose last step had not been stored. */
    public void foundRunning(LiveSandbox sandbox) {
        sandbox.writer.lock();
        try {
            if (sandbox.sandbox().state() == SandboxState.CREATING) {
                sandbox.becomes(sandbox.sandbox().running());
                store.updateSandbox(sandbox.sandbox());
            }
        } finally {
            sandbox.writer.unlock();
        }
    }

    /** Has the node remove a box, trying again for as long as the node is away. */
    public CompletableFuture<Void> removeBox(BoxId box) {
        return CompletableFuture.runAsync(() -> node.deleteBox(box), background);
    }

    public Optional<LiveSandbox> live(SandboxId id) {
        return Optional.ofNullable(live.get(id));
    }

    public Collection<LiveSandbox> live() {
        return List.copyOf(live.values());
    }

    private void event(Sandbox sandbox, String kind, String detail) {
        store.appendEventLater(new Event(
                0, sandbox.project(), clock.instant(), kind, sandbox.id().toString(), detail));
    }
}
