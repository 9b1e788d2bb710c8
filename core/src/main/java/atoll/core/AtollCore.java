package atoll.core;

import atoll.core.event.EventService;
import atoll.core.event.Events;
import atoll.core.execution.CodeExecution;
import atoll.core.execution.ExecutionService;
import atoll.core.execution.Executions;
import atoll.core.file.FileService;
import atoll.core.file.Files;
import atoll.core.node.Node;
import atoll.core.node.PatientNode;
import atoll.core.pool.Pools;
import atoll.core.port.PortService;
import atoll.core.port.Ports;
import atoll.core.process.ProcessService;
import atoll.core.process.Processes;
import atoll.core.process.StartProcess;
import atoll.core.sandbox.ContextService;
import atoll.core.sandbox.Contexts;
import atoll.core.sandbox.Expiry;
import atoll.core.sandbox.Forks;
import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxService;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Sandboxes;
import atoll.core.sandbox.Source;
import atoll.core.snapshot.Forking;
import atoll.core.snapshot.SnapshotService;
import atoll.core.snapshot.Snapshots;
import atoll.core.stats.ChangeCounter;
import atoll.core.stats.PoolMetrics;
import atoll.core.stats.Stats;
import atoll.core.stats.StatsService;
import atoll.core.stats.WatchedStore;
import atoll.core.store.Store;
import atoll.core.template.BuildUploads;
import atoll.core.template.Images;
import atoll.core.template.Registries;
import atoll.core.template.RegistryService;
import atoll.core.template.TemplateCatalog;
import atoll.core.template.TemplateService;
import atoll.core.template.Templates;
import atoll.core.template.UploadService;
import atoll.core.usage.Usage;
import atoll.core.usage.UsageService;
import java.time.Duration;
import java.time.InstantSource;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * Core, wired together. It uses the store and the node and does not close them: who made them does, after {@link #close}. Closing
 * ends nothing on the node; sandboxes and executions go on, and the next start takes them over.
 */
public final class AtollCore implements Atoll, AutoCloseable {
    /** What a sandbox is reckoned to take on average when the number of sandboxes is bound by memory. */
    private static final long MEMORY_PER_SANDBOX = 64L * 1024 * 1024;

    private static final int FEWEST_SANDBOXES = 16;
    private static final Duration CLOSE_WAIT = Duration.ofSeconds(2);

    private final Settings settings;
    private final KeyService keys;
    private final SessionService sessions;
    private final TemplateCatalog templates;
    private final RegistryService registries;
    private final TemplateService templateService;
    private final UploadService uploads;
    private final Pools pools;
    private final SandboxService sandboxes;
    private final ContextService contexts;
    private final ExecutionService executions;
    private final ProcessService processes;
    private final TokenService tokens;
    private final UsageService usage;
    private final EventService events;
    private final FileService files;
    private final StatsService stats;
    private final PortService ports;
    private final SnapshotService snapshots;
    private final Forking forks;
    private final Recovery recovery;
    private final Expiry expiry;
    private final Retention retention;
    private final ExecutorService threads;

    private AtollCore(
            Settings settings,
            Store unwatched,
            Node node,
            InstantSource clock,
            Metrics told,
            byte[] tokenKey,
            Installation installation) {
        this.settings = settings;
        threads = Executors.newThreadPerTaskExecutor(
                Thread.ofVirtual().name("core-", 0).factory());
        Executor background = this::inBackground;
        ChangeCounter changes = new ChangeCounter();
        Store store = WatchedStore.of(unwatched, changes);
        PoolMetrics metrics = StatsService.measuring(told, changes, clock);
        PatientNode patient = new PatientNode(node, settings.nodePatience());
        keys = new KeyService(store, clock);
        sessions = new SessionService(store, keys, clock);
        templates = new TemplateCatalog(settings);
        pools = new Pools(templates, patient, settings, metrics, background);
        templates.onChange(pools::follow);
        registries = new RegistryService(store, installation.sealing(), clock);
        templateService = new TemplateService(
                store,
                patient,
                templates,
                registries,
                installation.files(),
                settings,
                clock,
                background,
                this::runningSandbox,
                this::liveSandboxes);
        uploads = new UploadService(installation.files(), settings.builds().maxContextBytes(), tokenKey, clock);
        sandboxes = new SandboxService(
                store,
                patient,
                pools,
                templates,
                clock,
                metrics,
                background,
                settings,
                this::maxSandboxes,
                this::startMain,
                this::snapshotSource,
                templateService.builds()::ready,
                templateService.usage()::used);
        patient.onPaused(sandboxes::resumeForUse);
        executions = new ExecutionService(
                sandboxes,
                templates,
                store,
                patient,
                settings,
                clock,
                metrics,
                background,
                templateService.usage()::executed);
        contexts = new ContextService(sandboxes, templates, store, patient, clock, executions::isBusy);
        processes = new ProcessService(sandboxes, store, patient, clock, metrics, background);
        usage = new UsageService(sandboxes, store, patient, settings.usagePeriod());
        tokens = new TokenService(tokenKey, sandboxes);
        events = new EventService(store, sandboxes);
        files = new FileService(sandboxes, patient, clock, background);
        ports = new PortService(sandboxes, patient);
        expiry = sandboxes.expiry(executions::busySandboxes);
        sandboxes.onResumed(this::resumed);
        snapshots = new SnapshotService(sandboxes, templates, store, patient, settings, clock, background);
        forks = new Forking(sandboxes, snapshots, store, patient, settings, clock);
        stats = new StatsService(
                store, changes, metrics, this::status, this::liveSandboxes, templateService.usage()::executions, clock);
        recovery = new Recovery(
                store, patient, templates, pools, sandboxes, executions, processes, () -> snapshots.reconcile(forks));
        retention = new Retention(store, patient, settings, clock, templateService::sweep);
    }

    /**
     * Reads the store and begins to connect to the node; {@link #awaitReady} tells when that is done.
     *
     * @param tokenKey what the tokens of sandboxes are derived from; the same for as long as they are to be valid
     * @param installation what it has beside store and node
     */
    public static AtollCore start(
            Settings settings,
            Store store,
            Node node,
            InstantSource clock,
            Metrics metrics,
            byte[] tokenKey,
            Installation installation) {
        // As fine as stores keep it, so that an answer says the same before and after its record was read back.
        InstantSource stored = () -> clock.instant().truncatedTo(ChronoUnit.MICROS);
        AtollCore core = new AtollCore(settings, store, node, stored, metrics, tokenKey, installation);
        core.templateService.load();
        core.sandboxes.load();
        core.recovery.start();
        core.inBackground(core.retention::run);
        core.inBackground(core.usage::run);
        core.inBackground(core.stats::run);
        core.inBackground(core.templateService::run);
        core.inBackground(core::expireOnceReady);
        core.inBackground(core.snapshots::run);
        return core;
    }

    /** Makes sure that this secret opens the default project with every scope. */
    public void ensureKey(String secret, String name) {
        keys.ensure(secret, name);
    }

    /** Waits until store and node have been compared once; false when the time is up. */
    public boolean awaitReady(Duration limit) throws InterruptedException {
        return recovery.awaitReady(limit);
    }

    @Override
    public CodeExecution codeExecution() {
        return executions;
    }

    @Override
    public Contexts contexts() {
        return contexts;
    }

    @Override
    public Executions executions() {
        return executions;
    }

    @Override
    public Events events() {
        return events;
    }

    @Override
    public Files files() {
        return files;
    }

    @Override
    public Forks forks() {
        return forks;
    }

    @Override
    public Keys keys() {
        return keys;
    }

    @Override
    public Processes processes() {
        return processes;
    }

    @Override
    public Ports ports() {
        return ports;
    }

    @Override
    public Sandboxes sandboxes() {
        return sandboxes;
    }

    @Override
    public Sessions sessions() {
        return sessions;
    }

    @Override
    public Snapshots snapshots() {
        return snapshots;
    }

    @Override
    public Templates templates() {
        return templateService;
    }

    @Override
    public BuildUploads uploads() {
        return uploads;
    }

    @Override
    public Images images() {
        return templateService;
    }

    @Override
    public Registries registries() {
        return registries;
    }

    @Override
    public SandboxTokens tokens() {
        return tokens;
    }

    @Override
    public Usage usage() {
        return usage;
    }

    @Override
    public Stats stats() {
        return stats;
    }

    @Override
    public ServerStatus status() {
        return new ServerStatus(
                recovery.connected() && !recovery.replaced(),
                recovery.isReady(),
                recovery.replaced(),
                recovery.problem(),
                recovery.lastInfo(),
                pools.status(),
                sandboxes.live().size(),
                (int) sandboxes.live().stream()
                        .filter(alive -> alive.sandbox().state() == SandboxState.PAUSED)
                        .count(),
                executions.runningNow(),
                processes.runningNow());
    }

    /** For tests of what has no caller yet. */
    SandboxService service() {
        return sandboxes;
    }

    /** Looks what sandboxes use, now. */
    public void sampleUsage() {
        usage.sample();
    }

    /** Removes what is past its retention, now. */
    public void sweep() {
        retention.sweep();
    }

    /** Ends or pauses what is past its time, now; pauses may take longer than this call. */
    public void expire() {
        expiry.sweep();
        snapshots.sweep();
    }

    /** Before executions are taken over nobody knows which sandboxes are in use. */
    private void expireOnceReady() {
        try {
            while (!recovery.awaitReady(Duration.ofSeconds(10))) {
                System.getLogger(AtollCore.class.getName())
                        .log(System.Logger.Level.DEBUG, "no sandbox ends by time before the node was seen");
            }
            expiry.run();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void resumed(LiveSandbox sandbox) {
        executions.resumed(sandbox.id());
        processes.resumed(sandbox.id());
    }

    private Source snapshotSource(Caller caller, SnapshotId id) {
        Source source = snapshots.open(caller, id);
        pools.missedForSnapshot(source.template());
        return source;
    }

    @Override
    public void close() {
        pools.close();
        recovery.close();
        templateService.close();
        List<Runnable> left = threads.shutdownNow();
        assert left.isEmpty();
        try {
            // A start that is under way would be found by nobody if it came after the next server's first look.
            if (!threads.awaitTermination(CLOSE_WAIT.toMillis(), TimeUnit.MILLISECONDS)) {
                System.getLogger(AtollCore.class.getName())
                        .log(
                                System.Logger.Level.INFO,
                                "some work did not end with the server; the next start sees to it");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Once core is closed nothing is begun any more: the next start finds what was left and does it. */
    private void inBackground(Runnable task) {
        try {
            threads.execute(task);
        } catch (RejectedExecutionException e) {
            System.getLogger(AtollCore.class.getName())
                    .log(System.Logger.Level.DEBUG, "left to the next start: " + e.getMessage());
        }
    }

    private TemplateService.Running runningSandbox(Caller caller, SandboxId id) {
        LiveSandbox live = sandboxes.requireRunning(caller, id);
        return new TemplateService.Running(live.sandbox(), live.box());
    }

    private List<Sandbox> liveSandboxes() {
        return sandboxes.live().stream().map(LiveSandbox::sandbox).toList();
    }

    private void startMain(LiveSandbox sandbox, ProcessId id, StartProcess main) {
        processes.startMain(sandbox, id, main);
    }

    private int maxSandboxes() {
        if (settings.maxSandboxes() > 0) {
            return settings.maxSandboxes();
        }
        long memory = recovery.lastInfo().map(info -> info.memoryTotalBytes()).orElse(0L);
        return (int) Math.max(FEWEST_SANDBOXES, memory / MEMORY_PER_SANDBOX);
    }
}
