package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.Caller;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.Metrics;
import atoll.core.Page;
import atoll.core.ProjectId;
import atoll.core.RunId;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.node.Box;
import atoll.core.node.BoxAssignment;
import atoll.core.node.ContextSpec;
import atoll.core.node.Node;
import atoll.core.pool.Pools;
import atoll.core.pool.Taken;
import atoll.core.store.Event;
import atoll.core.store.Store;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
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

    private final Store store;
    private final Node node;
    private final Pools pools;
    private final TemplateCatalog templates;
    private final InstantSource clock;
    private final Metrics metrics;
    private final Executor background;
    private final IntSupplier maxPerProject;
    private final Map<SandboxId, LiveSandbox> live = new ConcurrentHashMap<>();

    public SandboxService(
            Store store,
            Node node,
            Pools pools,
            TemplateCatalog templates,
            InstantSource clock,
            Metrics metrics,
            Executor background,
            IntSupplier maxPerProject) {
        this.store = store;
        this.node = node;
        this.pools = pools;
        this.templates = templates;
        this.clock = clock;
        this.metrics = metrics;
        this.background = background;
        this.maxPerProject = maxPerProject;
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
        LiveSandbox made = take(caller, template, request.env(), request.labels());
        if (chosen != template.defaultLanguage()) {
            Context opened = context(made, Optional.of(chosen));
            assert opened.language() == chosen;
        }
        return made.sandbox();
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
    public List<Context> contexts(Caller caller, SandboxId id) {
        caller.require(Scope.READ);
        return store.contexts(owned(caller, id).id());
    }

    @Override
    public Sandbox delete(Caller caller, SandboxId id) throws InterruptedException {
        caller.require(Scope.EXECUTE);
        Sandbox sandbox = owned(caller, id);
        LiveSandbox alive = live.get(id);
        if (alive == null) {
            return sandbox;
        }
        Sandbox ended = end(alive, EndReason.DELETED, "Deleted by key " + caller.key() + ".");
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
    public LiveSandbox take(Caller caller, Template template, Map<String, String> env, Map<String, String> labels)
            throws InterruptedException {
        caller.require(Scope.EXECUTE);
        checkQuota(caller.project());
        long began = System.nanoTime();
        for (int tries = 1; ; tries++) {
            Taken taken = pools.take(template.id());
            try {
                LiveSandbox made = assign(caller, template, taken.box(), env, labels);
                metrics.sandboxTaken(template.id(), taken.from(), Duration.ofNanos(System.nanoTime() - began));
                return made;
            } catch (AtollException e) {
                // The box died while it waited in the pool: that is no reason for the caller to see an error.
                boolean boxGone = e.code() == ErrorCode.NOT_FOUND || e.code() == ErrorCode.CONFLICT;
                if (!boxGone || tries == TAKE_TRIES) {
                    throw e;
                }
            } finally {
                pools.handedOver(taken.box().id());
            }
        }
    }

    private LiveSandbox assign(
            Caller caller, Template template, Box box, Map<String, String> env, Map<String, String> labels) {
        Instant now = clock.instant();
        SandboxId id = SandboxId.random();
        Sandbox creating = new Sandbox(
                id,
                caller.project(),
                template.id(),
                SandboxState.CREATING,
                template.limits(),
                labels,
                box.id(),
                RunId.random(),
                now,
                Optional.empty());
        LiveSandbox made = new LiveSandbox(creating);
        made.underConstruction = true;
        Optional<Context> warm = box.warmContexts().stream()
                .findFirst()
                .map(spec -> new Context(spec.id(), caller.project(), id, spec.language(), true, now));
        warm.ifPresent(made::add);
        live.put(id, made);
        try {
            store.insertSandbox(creating, warm);
            Box assigned = node.assignBox(box.id(), new BoxAssignment(id, id.toString(), env, template.limits()));
            started(made, assigned);
        } catch (RuntimeException e) {
            Sandbox ended = end(made, EndReason.START_FAILED, "It could not be started: " + e.getMessage());
            assert ended.end().isPresent();
            CompletableFuture<Void> removed = removeBox(box.id());
            assert removed != null;
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
            node.openContext(sandbox.box(), ContextSpec.of(context.id(), language));
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
        node.openContext(sandbox.box(), ContextSpec.of(context.id(), context.language()));
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
        if (!(e instanceof AtollException known)
                || (known.code() != ErrorCode.NOT_FOUND && known.code() != ErrorCode.CONFLICT)) {
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
                                "Its body was not on the node any more: the machine was restarted, or someone removed it."));
        assert ended.state() == SandboxState.ENDED;
        if (box.isPresent()) {
            CompletableFuture<Void> removed = removeBox(sandbox.box());
            assert removed != null;
        }
    }

    /** Takes it to its end, once; returns it as it ended. */
    private Sandbox end(LiveSandbox alive, EndReason reason, String detail) {
        alive.writer.lock();
        try {
            if (alive.sandbox().state() == SandboxState.ENDED) {
                return alive.sandbox();
            }
            Sandbox ended = alive.sandbox().ended(new Sandbox.End(reason, detail, clock.instant()));
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
