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
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.Settings;
import atoll.core.SnapshotId;
import atoll.core.node.Box;
import atoll.core.node.ContextSpec;
import atoll.core.node.PatientNode;
import atoll.core.pool.Pools;
import atoll.core.process.StartProcess;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.store.OnceByKey;
import atoll.core.store.Store;
import atoll.core.template.LimitChanges;
import atoll.core.template.Limits;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import java.time.Duration;
import java.time.InstantSource;
import java.util.Collection;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.function.IntSupplier;
import java.util.function.Supplier;

/**
 * Sandboxes as callers and the rest of core see them. What is to happen is stored before it is done: a crash in between is undone or
 * finished on the next start (see {@code Recovery}). Live sandboxes, paused ones too, are kept in memory, ended ones are read from the
 * store.
 */
public final class SandboxService implements Sandboxes {
    private static final System.Logger LOG = System.getLogger(SandboxService.class.getName());
    /** How long a delete waits for the node before it lets the node finish alone. */
    private static final long DELETE_WAIT_MILLIS = 700;

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

    /** Finds the snapshots that callers name. */
    @FunctionalInterface
    public interface SnapshotSource {
        /** What a sandbox from it is made from; fails for one that is not there, or another project's. */
        Source open(Caller caller, SnapshotId id);
    }

    /** Has templates built. */
    @FunctionalInterface
    public interface Readiness {
        /** The template, once its image is there. */
        Template await(ProjectId project, Template template) throws InterruptedException;
    }

    private final Store store;
    private final PatientNode node;
    private final TemplateCatalog templates;
    private final InstantSource clock;
    private final Executor background;
    private final Settings settings;
    private final MainStarter mainStarter;
    private final SnapshotSource snapshots;
    private final Readiness readiness;
    private final BiConsumer<ProjectId, String> usage;
    private final OnceByKey once = new OnceByKey();
    private final LiveSandboxes live;
    private final Records records;
    private final LifecycleService lifecycles;
    private final SandboxMaker maker;
    private final ContextOpener opener;

    public SandboxService(
            Store store,
            PatientNode node,
            Pools pools,
            TemplateCatalog templates,
            InstantSource clock,
            Metrics metrics,
            Executor background,
            Settings settings,
            IntSupplier maxPerProject,
            MainStarter mainStarter,
            SnapshotSource snapshots,
            Readiness readiness,
            BiConsumer<ProjectId, String> usage) {
        this.store = store;
        this.node = node;
        this.templates = templates;
        this.clock = clock;
        this.background = background;
        this.settings = settings;
        this.mainStarter = mainStarter;
        this.snapshots = snapshots;
        this.readiness = readiness;
        this.usage = usage;
        live = new LiveSandboxes(maxPerProject);
        records = new Records(store, node, live, clock, metrics, background);
        LifecycleService.Prepared prepared = new FromPools(pools);
        lifecycles = new LifecycleService(
                store, node, live, records, prepared, settings.lives(), clock, metrics, background);
        maker = new SandboxMaker(store, node, live, records, pools, prepared, clock, metrics);
        opener = new ContextOpener(store, node, templates, clock, this::translated);
    }

    /** Reads what was live when the server stopped. */
    public void load() {
        for (Sandbox sandbox : store.liveSandboxes()) {
            LiveSandbox loaded = new LiveSandbox(sandbox);
            store.contexts(sandbox.id()).forEach(loaded::add);
            // What the node was told last is not on record.
            loaded.deadlineOpen = sandbox.expiresAt().isPresent();
            live.add(loaded);
        }
    }

    /** The sweep over those whose time is up; {@code busy} are those in which code runs. */
    public Expiry expiry(Supplier<Set<SandboxId>> busy) {
        return new Expiry(live, records, lifecycles, settings.lives(), clock, background, busy);
    }

    /** Has {@code listener} told of each sandbox that runs again after a pause or in another state, before anyone uses it. */
    public void onResumed(Consumer<LiveSandbox> listener) {
        lifecycles.onResumed(listener);
    }

    // Making.

    @Override
    public Created createOrGet(Caller caller, CreateSandbox request) throws InterruptedException {
        caller.require(Scope.EXECUTE);
        Body body = body(caller, request);
        if (request.idempotencyKey().isPresent()) {
            return createOnce(caller, request, request.idempotencyKey().get(), body);
        }
        return createNamed(caller, request, body, SandboxId.random(), TAKE_TRIES);
    }

    /** What a new sandbox is made from. */
    private sealed interface Body {
        record FromTemplate(Template template, Optional<Language> language) implements Body {}

        record FromSource(Source source) implements Body {}
    }

    private Body body(Caller caller, CreateSandbox request) throws InterruptedException {
        if (request.snapshot().isPresent()) {
            request.limits().requireChangeable();
            return new Body.FromSource(snapshots.open(caller, request.snapshot().get()));
        }
        Optional<Language> language = request.language().map(Language::parse);
        Template template = ready(caller, templates.choose(caller.project(), request.template(), language));
        // One whose image has no language is of use too: for programs.
        return new Body.FromTemplate(
                template,
                language.isEmpty() && template.defaultLanguage().isEmpty()
                        ? Optional.empty()
                        : Optional.of(templates.choose(caller.project(), template, language)));
    }

    private Created createOnce(Caller caller, CreateSandbox request, String key, Body body)
            throws InterruptedException {
        try (OnceByKey.Turn turn = once.begin(caller.project(), key)) {
            SandboxId id = SandboxId.parse(turn.claim(
                    store, OPERATION, request.parts(), SandboxId.random().toString(), clock.instant()));
            Optional<Sandbox> there = find(id);
            return there.isPresent() ? new Created(there.get(), false) : createNamed(caller, request, body, id, 1);
        }
    }

    private Created createNamed(Caller caller, CreateSandbox request, Body body, SandboxId id, int mostTries)
            throws InterruptedException {
        if (request.name().isEmpty()) {
            return new Created(make(caller, request, body, id, mostTries), false);
        }
        String name = request.name().get();
        try (OnceByKey.Turn turn = live.naming(caller.project(), name)) {
            assert turn != null;
            Optional<LiveSandbox> there = live.named(caller.project(), name);
            if (there.isPresent() && request.ifExists() == IfExists.GET) {
                return new Created(there.get().seen(), true);
            }
            live.requireFree(caller.project(), name);
            return new Created(make(caller, request, body, id, mostTries), false);
        }
    }

    private Sandbox make(Caller caller, CreateSandbox request, Body body, SandboxId id, int mostTries)
            throws InterruptedException {
        LiveSandbox made = switch (body) {
            case Body.FromTemplate(Template template, Optional<Language> language) -> {
                Lifecycle agreed = agreed(template, request.lifecycle());
                LiveSandbox taken = maker.take(
                        wanted(caller, request, id, template.limits(), template.env(), agreed), template, mostTries);
                usage.accept(caller.project(), template.id());
                open(taken, template, language);
                yield taken;
            }
            case Body.FromSource(Source source) -> {
                try (Room room = live.reserve(caller.project(), 1)) {
                    Lifecycle agreed = settings.lives().agree(settings.lives().defaults(), request.lifecycle());
                    yield maker.restore(
                            wanted(caller, request, id, source.limits(), source.env(), agreed), source, room);
                }
            }
        };
        request.main().ifPresent(main -> startMain(made, main.process()));
        return made.seen();
    }

    private NewSandbox wanted(
            Caller caller,
            CreateSandbox request,
            SandboxId id,
            Limits limits,
            Map<String, String> env,
            Lifecycle lifecycle) {
        return new NewSandbox(
                id,
                caller.project(),
                limits(limits, request.limits()),
                merged(env, request.env()),
                request.labels(),
                request.main().map(main -> new MainProcess(ProcessId.random(), main.endsSandbox())),
                request.name(),
                lifecycle);
    }

    /** What the caller says counts more than the template, and that more than the settings. */
    private Lifecycle agreed(Template template, LifecycleChanges asked) {
        asked.lifetime().ifPresent(term -> requireWithin(template, term));
        Lifecycle own = template.lifecycle().applyTo(settings.lives().defaults());
        return settings.lives().agree(own, asked);
    }

    private static void requireWithin(Template template, Term asked) {
        if (template.maxLifetime().isEmpty()) {
            return;
        }
        Duration most = template.maxLifetime().get();
        if (asked.length().filter(time -> time.compareTo(most) <= 0).isEmpty()) {
            throw AtollException.invalid(
                    "lifetime_seconds: "
                            + asked.length().map(time -> "" + time.toSeconds()).orElse("none")
                            + " (expected: at most " + most.toSeconds() + ", as template " + template.id() + " says)",
                    "Ask for less, or use another template.");
        }
    }

    private Limits limits(Limits base, LimitChanges changes) {
        return changes.equals(LimitChanges.NONE) ? base : settings.bounds().check(changes.applyTo(base));
    }

    private static Map<String, String> merged(Map<String, String> env, Map<String, String> over) {
        Map<String, String> merged = new HashMap<>(env);
        merged.putAll(over);
        return merged;
    }

    /** A sandbox without the process that it is for is none: it ends, and its caller is told why. */
    private void startMain(LiveSandbox made, StartProcess main) {
        try {
            mainStarter.start(made, made.sandbox().main().orElseThrow().id(), main);
        } catch (RuntimeException e) {
            maker.undo(made, "Its main process could not be started: " + e.getMessage());
            throw e;
        } finally {
            made.mainPending = false;
        }
    }

    private void open(LiveSandbox made, Template template, Optional<Language> chosen) throws InterruptedException {
        if (!chosen.equals(template.defaultLanguage())) {
            Context opened = context(made, chosen);
            assert Optional.of(opened.language()).equals(chosen);
        }
    }

    /** The template, once its image is there: the first use of one has it built. */
    public Template ready(Caller caller, Template template) throws InterruptedException {
        return readiness.await(caller.project(), template);
    }

    /** A new sandbox: from the pool if it has a box, else as soon as one is started. */
    public LiveSandbox take(
            Caller caller, Template template, LimitChanges changes, Map<String, String> env, Map<String, String> labels)
            throws InterruptedException {
        caller.require(Scope.EXECUTE);
        NewSandbox wanted = new NewSandbox(
                SandboxId.random(),
                caller.project(),
                limits(template.limits(), changes),
                merged(template.env(), env),
                labels,
                Optional.empty(),
                Optional.empty(),
                agreed(template, LifecycleChanges.NONE));
        LiveSandbox taken = maker.take(wanted, template, TAKE_TRIES);
        usage.accept(caller.project(), template.id());
        return taken;
    }

    /**
     * A copy, running when this returns: its record comes first, with contexts that know which ones they are copies of, then its box by
     * {@code Node.restoreBox}; what fails is undone. It takes a place of {@code room};
     * {@code source} must last until this returns.
     */
    public LiveSandbox makeFrom(NewSandbox wanted, Source source, Room room) {
        if (wanted.name().isEmpty()) {
            return maker.restore(wanted, source, room);
        }
        String name = wanted.name().get();
        try (OnceByKey.Turn turn = live.naming(wanted.project(), name)) {
            assert turn != null;
            live.requireFree(wanted.project(), name);
            return maker.restore(wanted, source, room);
        }
    }

    /** Ends a copy that was made, because another one that belongs to it was not. */
    public void undo(LiveSandbox made, String why) {
        maker.undo(made, why);
    }

    /** Places for so many copies; fails if they would be more than the project may have running. To be closed. */
    public Room reserve(Caller caller, int more) {
        return live.reserve(caller.project(), more);
    }

    // Looking and changing.

    @Override
    public Sandbox get(Caller caller, SandboxId id) {
        caller.require(Scope.READ);
        return owned(caller, id);
    }

    @Override
    public Page<Sandbox> list(Caller caller, SandboxQuery query) {
        caller.require(Scope.READ);
        return store.sandboxes(caller.project(), query)
                .map(stored -> live.find(stored.id())
                        .filter(alive -> alive.sandbox().state() == stored.state())
                        .map(LiveSandbox::seen)
                        .orElse(stored));
    }

    @Override
    public List<Run> runs(Caller caller, SandboxId id) {
        caller.require(Scope.READ);
        return store.runs(owned(caller, id).id());
    }

    @Override
    public Sandbox update(Caller caller, SandboxId id, UpdateSandbox changes) {
        caller.require(Scope.EXECUTE);
        changes.limits().requireChangeable();
        LiveSandbox alive = requireLive(caller, id);
        if (changes.name().isPresent()) {
            rename(alive, changes.name().get());
        }
        if (!changes.lifecycle().equals(LifecycleChanges.NONE)) {
            Sandbox agreed = lifecycles.agree(
                    alive, s -> s.agreed(settings.lives().agree(s.lifecycle(), changes.lifecycle()), s.expiresAt()));
            assert agreed.id().equals(id);
        }
        if (changes.limits().equals(LimitChanges.NONE)) {
            alive.revision.lock();
            try {
                Sandbox labelled =
                        records.revise(alive, s -> s.revised(s.limits(), Labels.changed(s.labels(), changes.labels())));
                assert labelled.id().equals(id);
            } finally {
                alive.revision.unlock();
            }
        } else {
            changeLimits(alive, changes);
        }
        records.event(alive.sandbox(), "sandbox.updated", "");
        return alive.seen();
    }

    private void rename(LiveSandbox alive, String name) {
        if (alive.sandbox().name().equals(Optional.of(name))) {
            return;
        }
        try (OnceByKey.Turn turn = live.naming(alive.sandbox().project(), name)) {
            assert turn != null;
            live.requireFree(alive.sandbox().project(), name);
            Sandbox named = records.revise(alive, s -> s.named(Optional.of(name)));
            assert named.name().isPresent();
        }
    }

    /** While it is paused its limits are on record only: they hold once it runs. */
    private void changeLimits(LiveSandbox alive, UpdateSandbox changes) {
        alive.lifecycle().lock();
        alive.revision.lock();
        try {
            lifecycles.settle(alive);
            Sandbox before = alive.sandbox();
            Limits limits = settings.bounds().check(changes.limits().applyTo(before.limits()));
            Map<String, String> labels = Labels.changed(before.labels(), changes.labels());
            Sandbox revised = records.revise(alive, s -> s.revised(limits, labels));
            if (revised.state() == SandboxState.RUNNING && !limits.equals(before.limits())) {
                enforce(alive, before);
            }
        } finally {
            alive.revision.unlock();
            alive.lifecycle().unlock();
        }
    }

    /** Has the node do what the record says; if it can't, the record says what was {@code before}. */
    private void enforce(LiveSandbox alive, Sandbox before) {
        try {
            Box box = node.updateLimits(alive.box(), alive.sandbox().limits());
            assert box.id().equals(alive.box());
        } catch (RuntimeException e) {
            RuntimeException told = translated(alive, e);
            if (alive.sandbox().state() != SandboxState.ENDED) {
                Sandbox undone = records.revise(alive, s -> s.revised(before.limits(), before.labels()));
                assert undone.limits().equals(before.limits());
                // It may have been done all the same.
                background.execute(() -> alignAlone(alive));
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
        background.execute(() -> alignAlone(sandbox));
    }

    private void alignAlone(LiveSandbox sandbox) {
        sandbox.lifecycle().lock();
        try {
            if (sandbox.sandbox().state() == SandboxState.RUNNING) {
                Box box = node.updateLimits(sandbox.box(), sandbox.sandbox().limits());
                assert box.id().equals(sandbox.box());
            }
        } catch (AtollException e) {
            LOG.log(
                    System.Logger.Level.WARNING,
                    "sandbox " + sandbox.id() + " could not get the limits that are on record: " + e.message());
        } finally {
            sandbox.lifecycle().unlock();
        }
    }

    @Override
    public Sandbox delete(Caller caller, SandboxId id) throws InterruptedException {
        caller.require(Scope.EXECUTE);
        Sandbox sandbox = owned(caller, id);
        Optional<LiveSandbox> alive = live.find(id);
        if (alive.isEmpty()) {
            return sandbox;
        }
        Sandbox ended = records.end(
                alive.get(), EndReason.DELETED, "Deleted by key " + caller.key() + ".", OptionalInt.empty());
        CompletableFuture<Void> deletion = records.removeBox(sandbox.box());
        try {
            deletion.get(DELETE_WAIT_MILLIS, TimeUnit.MILLISECONDS);
        } catch (ExecutionException | TimeoutException e) {
            // It is deleted as far as anybody can see; the node is told again by removeBox and by the next
            // reconciliation.
            LOG.log(System.Logger.Level.INFO, "box of sandbox " + id + " is still being removed: " + e.getMessage());
        }
        return ended;
    }

    // Its life.

    @Override
    public Sandbox pause(Caller caller, SandboxId id, SnapshotKind keep) {
        caller.require(Scope.EXECUTE);
        LiveSandbox alive = requireLive(caller, id);
        return told(alive, () -> lifecycles.pause(alive, keep));
    }

    @Override
    public Sandbox resume(Caller caller, SandboxId id, Optional<Term> lifetime) {
        caller.require(Scope.EXECUTE);
        LiveSandbox alive = requireLive(caller, id);
        return told(alive, () -> lifecycles.resume(alive, lifetime));
    }

    @Override
    public Sandbox extend(Caller caller, SandboxId id, Term lifetime) {
        caller.require(Scope.EXECUTE);
        return lifecycles.extend(requireLive(caller, id), lifetime);
    }

    /** Puts it back to a snapshot of itself; it is running when this returns, and after an error as it was. */
    public Sandbox rollback(LiveSandbox alive, Snapshot snapshot) {
        return told(alive, () -> lifecycles.rollback(alive, snapshot));
    }

    private Sandbox told(LiveSandbox alive, Supplier<Sandbox> work) {
        try {
            return work.get();
        } catch (AtollException e) {
            throw translated(alive, e);
        }
    }

    /**
     * Finishes or undoes a pause, resume or rollback that was left open, so that its state is what it is. Requires: its
     * {@link LiveSandbox#lifecycle} is held.
     */
    public void settle(LiveSandbox alive) {
        lifecycles.settle(alive);
    }

    /** For {@code PatientNode.onPaused}: sees to it that the box's sandbox runs; false if nobody knows whose it is. */
    public boolean resumeForUse(BoxId box) {
        return lifecycles.resumeForUse(box);
    }

    /** It is being used. */
    public void touch(LiveSandbox alive) {
        alive.touch(clock.instant());
    }

    /** Compares what is on record of it with what its node says. */
    public void reconcile(LiveSandbox alive, Box box) {
        lifecycles.reconcile(alive, box);
    }

    // Using.

    /** The one place that decides whose sandbox it is: another project's does not exist. */
    private Sandbox owned(Caller caller, SandboxId id) {
        return find(id).filter(sandbox -> sandbox.project().equals(caller.project()))
                .orElseThrow(() -> new AtollException(
                        ErrorCode.SANDBOX_NOT_FOUND,
                        "sandbox: " + id + " was not found",
                        "There is none of that id in this project, or it ended so long ago that its record was removed.",
                        "Leave sandbox_id out to get a new sandbox."));
    }

    /** A sandbox that has not ended, whatever state it is in; fails with the stored reason if it has. */
    public LiveSandbox requireLive(Caller caller, SandboxId id) {
        Sandbox sandbox = owned(caller, id);
        return live.find(id).orElseThrow(() -> endedError(find(id).orElse(sandbox)));
    }

    /**
     * A sandbox that code can run in: a paused one is resumed, if that was agreed. To be asked by every call that needs its inside. Fails
     * with the stored reason if it has ended.
     */
    public LiveSandbox requireRunning(Caller caller, SandboxId id) {
        caller.require(Scope.EXECUTE);
        LiveSandbox alive = requireLive(caller, id);
        try {
            lifecycles.resumeForUse(alive);
        } catch (AtollException e) {
            throw translated(alive, e);
        }
        return alive;
    }

    /** What a caller is told who wants to use a sandbox that has ended. */
    public static AtollException endedError(Sandbox sandbox) {
        return Records.ended(sandbox);
    }

    /** The context that a call goes to which names at most a language. It is opened if the sandbox has none of that language. */
    public Context context(LiveSandbox sandbox, Optional<Language> language) throws InterruptedException {
        return opener.byLanguage(sandbox, language);
    }

    /** Opens a context again that the node has lost; its state is gone. */
    public void reopen(LiveSandbox sandbox, Context context) {
        opener.reopen(sandbox, context);
    }

    static ContextSpec spec(Context context) {
        return ContextOpener.spec(context);
    }

    /** A context by its id, or by the id that it had in the original of a copy; {@code language}, if named too, must be its own. */
    public Context context(LiveSandbox sandbox, ContextId id, Optional<Language> language) {
        return ContextOpener.byId(sandbox, id, language);
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
        lifecycles.boxEnded(sandbox, box);
    }

    /** Its main process ended, and was to end it. Nothing happens if it has ended for another reason. */
    public void mainExited(LiveSandbox sandbox, OptionalInt exitCode, String detail) {
        Sandbox ended = records.end(sandbox, EndReason.MAIN_EXITED, detail, exitCode);
        assert ended.state() == SandboxState.ENDED;
        CompletableFuture<Void> removed = removeBox(sandbox.box());
        assert removed != null;
    }

    /** A sandbox of any state, for those who look after what was in it. */
    public Optional<Sandbox> find(SandboxId id) {
        return live.find(id).map(LiveSandbox::seen).or(() -> store.sandbox(id));
    }

    /** A sandbox was found alive on the node whose last step had not been stored. */
    public void foundRunning(LiveSandbox sandbox) {
        if (sandbox.sandbox().state() != SandboxState.CREATING) {
            return;
        }
        try {
            Sandbox running = records.step(sandbox, Sandbox::running);
            assert running.id().equals(sandbox.id());
        } catch (AtollException e) {
            if (e.code() != ErrorCode.SANDBOX_ENDED) {
                throw e;
            }
            // Deleted in this moment.
            assert sandbox.sandbox().end().isPresent();
        }
    }

    /** Has the node remove a box, trying again for as long as the node is away. */
    public CompletableFuture<Void> removeBox(BoxId box) {
        return records.removeBox(box);
    }

    /** The live one whose body it is. */
    public Optional<LiveSandbox> ofBox(BoxId box) {
        return live.ofBox(box);
    }

    public Optional<LiveSandbox> live(SandboxId id) {
        return live.find(id);
    }

    public Collection<LiveSandbox> live() {
        return live.all();
    }

    private record FromPools(Pools pools) implements LifecycleService.Prepared {
        @Override
        public Optional<BoxId> lend(Sandbox sandbox) {
            return pools.prepared(sandbox.template(), sandbox.limits());
        }

        @Override
        public void used(BoxId box) {
            pools.handedOver(box);
        }
    }
}
