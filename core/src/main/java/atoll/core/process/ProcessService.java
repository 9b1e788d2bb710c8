package atoll.core.process;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.Metrics;
import atoll.core.Page;
import atoll.core.ProcessId;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.execution.ExitReason;
import atoll.core.execution.Forgetter;
import atoll.core.execution.OutputReader;
import atoll.core.execution.Printing;
import atoll.core.node.HeldProcess;
import atoll.core.node.NodeProcess;
import atoll.core.node.OutputFollower;
import atoll.core.node.PatientNode;
import atoll.core.node.ProcessSpec;
import atoll.core.pool.Pools;
import atoll.core.process.ProcessRecord.Progress;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.MainProcess;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxService;
import atoll.core.sandbox.SandboxState;
import atoll.core.store.OnceByKey;
import atoll.core.store.Store;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;

/**
 * Starts programs, keeps their records, and follows each to its end by one call to the node that costs no thread. The record is
 * written before the node is asked: a crash in between is made up for by {@link #reconcile} on the next start.
 */
public final class ProcessService implements Processes {
    private static final String OPERATION = "start_process";
    private static final Duration KILL_WAIT = Duration.ofSeconds(10);
    /** For those that a starting server has not taken over yet. */
    private static final long LOOK_AGAIN_MILLIS = 20;
    /** So long a limit is none. */
    private static final Duration FOREVER = Duration.ofDays(365);

    private final SandboxService sandboxes;
    private final Store store;
    private final PatientNode node;
    private final InstantSource clock;
    private final Metrics metrics;
    private final Executor background;
    private final Forgetter<ProcessId> forgetter;
    private final OnceByKey once = new OnceByKey();

    /** Those that run and that this server follows. */
    private final Map<ProcessId, RunningProcess> running = new ConcurrentHashMap<>();

    private final Map<SandboxId, Map<Integer, RunningProcess>> byPid = new ConcurrentHashMap<>();

    /** Paused sandboxes with processes on record that the node did not name. */
    private final Set<SandboxId> postponed = ConcurrentHashMap.newKeySet();

    /** On record, and the node is being asked. */
    private final Set<ProcessId> starting = ConcurrentHashMap.newKeySet();

    public ProcessService(
            SandboxService sandboxes,
            Store store,
            PatientNode node,
            InstantSource clock,
            Metrics metrics,
            Executor background) {
        this.sandboxes = sandboxes;
        this.store = store;
        this.node = node;
        this.clock = clock;
        this.metrics = metrics;
        this.background = background;
        this.forgetter = new Forgetter<>((ids, keep) -> node.processes().forget(ids, keep), background);
    }

    @Override
    public ProcessRecord start(Caller caller, SandboxId sandboxId, StartProcess request) {
        caller.require(Scope.EXECUTE);
        Sandbox sandbox = sandboxes.get(caller, sandboxId);
        if (request.idempotencyKey().isEmpty()) {
            return start(sandboxes.requireRunning(caller, sandboxId), ProcessId.random(), request, false);
        }
        try (OnceByKey.Turn turn =
                once.begin(sandbox.project(), request.idempotencyKey().get())) {
            ProcessId id = ProcessId.parse(turn.claim(
                    store,
                    OPERATION,
                    List.of(sandboxId, request.parts()),
                    ProcessId.random().toString(),
                    clock.instant()));
            Optional<ProcessRecord> there = known(id);
            // Without a record the first try never reached the node: this one is the first that does.
            return there.isPresent()
                    ? there.get()
                    : start(sandboxes.requireRunning(caller, sandboxId), id, request, false);
        }
    }

    /** The main process of a sandbox that is being made. */
    public void startMain(LiveSandbox sandbox, ProcessId id, StartProcess request) {
        ProcessRecord started = start(sandbox, id, request, true);
        assert started.main();
    }

    private ProcessRecord start(LiveSandbox sandbox, ProcessId id, StartProcess request, boolean main) {
        ProcessRecord record = record(sandbox, id, request, main);
        starting.add(id);
        try {
            store.saveProcessLater(record, () -> {});
            if (request.idempotencyKey().isPresent()) {
                store.flush();
            }
            NodeProcess started = startFirst(sandbox.box(), id, request);
            metrics.processStarted();
            return started(record, sandbox.box(), started);
        } catch (AtollException e) {
            if (e.code() == ErrorCode.NODE_UNAVAILABLE) {
                // It may have started all the same: who follows it finds out.
                follow(record, sandbox.box()).watch();
                throw e;
            }
            store.removeProcessLater(id);
            throw refused(sandbox, e);
        } finally {
            starting.remove(id);
        }
    }

    private ProcessRecord record(LiveSandbox sandbox, ProcessId id, StartProcess request, boolean main) {
        return new ProcessRecord(
                id,
                sandbox.sandbox().project(),
                sandbox.id(),
                request.program().candidates().getFirst(),
                request.program() instanceof Program.Command(String text) ? Optional.of(text) : Optional.empty(),
                request.cwd(),
                request.user(),
                request.stdin(),
                request.timeout(),
                request.terminal(),
                request.labels(),
                main,
                0,
                clock.instant(),
                Optional.empty(),
                Progress.NONE,
                Optional.empty());
    }

    /** Tries the candidates in their order; an image need not have bash. */
    private NodeProcess startFirst(BoxId box, ProcessId id, StartProcess request) {
        List<List<String>> candidates = request.program().candidates();
        for (List<String> argv : candidates.subList(0, candidates.size() - 1)) {
            try {
                return node.processes().start(box, spec(id, argv, request));
            } catch (AtollException e) {
                if (e.code() != ErrorCode.PROGRAM_NOT_FOUND) {
                    throw e;
                }
            }
        }
        return node.processes().start(box, spec(id, candidates.getLast(), request));
    }

    private static ProcessSpec spec(ProcessId id, List<String> argv, StartProcess request) {
        return new ProcessSpec(
                id,
                argv,
                request.cwd(),
                request.env(),
                request.user(),
                request.stdin(),
                request.timeout(),
                request.terminal(),
                request.labels());
    }

    private ProcessRecord started(ProcessRecord record, BoxId box, NodeProcess seen) {
        RunningProcess process = follow(record.with(seen.spec().argv()), box);
        ProcessRecord now = process.seen(seen);
        process.save();
        process.watch();
        return now;
    }

    /** Why it was not started, in the words of callers. */
    private RuntimeException refused(LiveSandbox sandbox, AtollException e) {
        if (e.code() != ErrorCode.PROGRAM_NOT_FOUND) {
            return sandboxes.translated(sandbox, e);
        }
        // The node says the same of a box that is gone.
        AtollException notFound = new AtollException(ErrorCode.NOT_FOUND, e.message(), "", "", e);
        RuntimeException told = sandboxes.translated(sandbox, notFound);
        return told == notFound ? e : told;
    }

    private RunningProcess follow(ProcessRecord record, BoxId box) {
        RunningProcess process = new RunningProcess(record, box, node, background, new RunningProcess.Owner() {
            @Override
            public void hasPid(RunningProcess one, int pid) {
                byPid.compute(one.sandboxId(), (_, there) -> {
                    Map<Integer, RunningProcess> pids = there == null ? new ConcurrentHashMap<>() : there;
                    pids.put(pid, one);
                    return pids;
                });
            }

            @Override
            public void save(ProcessRecord now) {
                store.saveProcessLater(now, now.running() ? () -> {} : () -> forgetter.forget(now.id(), true));
            }

            @Override
            public void ended(RunningProcess one, ProcessRecord record) {
                ProcessService.this.ended(one, record);
            }

            @Override
            public ProcessEnd lost(ProcessRecord record, AtollException e) {
                return endWithoutNode(record, e);
            }
        });
        RunningProcess there = running.putIfAbsent(record.id(), process);
        return there == null ? process : there;
    }

    private void ended(RunningProcess process, ProcessRecord record) {
        running.remove(record.id());
        byPid.computeIfPresent(record.sandboxId(), (_, pids) -> {
            pids.remove(record.pid(), process);
            return pids.isEmpty() ? null : pids;
        });
        metrics.processEnded(record.end().orElseThrow().reason());
        if (record.main()) {
            background.execute(() -> mainEnded(record));
        }
    }

    /** Takes the sandbox along, if that is what it was asked to do. */
    private void mainEnded(ProcessRecord record) {
        Optional<LiveSandbox> alive = sandboxes.live(record.sandboxId());
        ProcessEnd end = record.end().orElseThrow();
        // One that went with its sandbox has not ended it: why it ended is told by its box.
        if (alive.isEmpty() || !endsIts(alive.get(), record.id()) || end.reason() == ProcessEnd.Reason.SANDBOX_ENDED) {
            return;
        }
        sandboxes.mainExited(alive.get(), end.exitCode(), "Its main process " + record.id() + " ended: " + told(end));
    }

    private static boolean endsIts(LiveSandbox sandbox, ProcessId id) {
        return sandbox.sandbox()
                .main()
                .filter(main -> main.endsSandbox() && main.id().equals(id))
                .isPresent();
    }

    private static String told(ProcessEnd end) {
        String how = switch (end.reason()) {
            case EXITED -> "exit code " + end.exitCode().orElse(0);
            case SIGNALED -> "signal " + Signals.name(end.signal().orElse(0));
            case TIMEOUT -> "its time was up";
            case OUT_OF_MEMORY -> "out of memory";
            case SANDBOX_ENDED -> "with the sandbox";
            case LOST -> "nobody can say how";
        };
        return end.detail().isEmpty() ? how + "." : how + ". " + end.detail();
    }

    private Optional<ProcessRecord> known(ProcessId id) {
        RunningProcess process = running.get(id);
        return process != null ? Optional.of(process.record()) : store.process(id);
    }

    /** The one place that decides whose process it is: another project's does not exist. */
    private ProcessRecord owned(Caller caller, ProcessRef ref) {
        Optional<ProcessRecord> found = switch (ref) {
            case ProcessRef.ById(ProcessId id) -> known(id);
            case ProcessRef.InSandbox(SandboxId sandbox, ProcessId id) ->
                known(id).filter(record -> record.sandboxId().equals(sandbox));
            case ProcessRef.ByPid(SandboxId sandbox, int pid) ->
                Optional.ofNullable(byPid.getOrDefault(sandbox, Map.of()).get(pid))
                        .map(RunningProcess::record);
        };
        return found.filter(record -> record.project().equals(caller.project())).orElseThrow(() -> notFound(ref));
    }

    private static AtollException notFound(ProcessRef ref) {
        String shown = switch (ref) {
            case ProcessRef.ById(ProcessId id) -> id.toString();
            case ProcessRef.InSandbox(SandboxId sandbox, ProcessId id) -> id + " in sandbox " + sandbox;
            case ProcessRef.ByPid(SandboxId sandbox, int pid) -> "a running one with pid " + pid + " in " + sandbox;
        };
        return new AtollException(
                ErrorCode.PROCESS_NOT_FOUND,
                "process: " + shown + " was not found",
                "There is none in this project that was started by a call, or its record was removed by retention.",
                "GET /v1/sandboxes/{sandbox_id}/processes lists those that are there, /ps every one inside.");
    }

    @Override
    public ProcessRecord get(Caller caller, ProcessRef ref) {
        caller.require(Scope.READ);
        return refreshed(owned(caller, ref));
    }

    /** Its sandbox is being used. */
    private void used(ProcessRecord record) {
        sandboxes.live(record.sandboxId()).ifPresent(sandboxes::touch);
    }

    /** As the node sees it now, if it runs; nothing changes while its sandbox is paused. */
    private ProcessRecord refreshed(ProcessRecord record) {
        RunningProcess process = running.get(record.id());
        if (process == null) {
            return known(record.id()).orElse(record);
        }
        if (standsStill(record.sandboxId())) {
            return process.record();
        }
        try {
            return process.seen(node.processes().get(process.box(), record.id()));
        } catch (AtollException e) {
            if (e.code() != ErrorCode.NOT_FOUND && e.code() != ErrorCode.CONFLICT) {
                throw e;
            }
            // It ended in this moment; who follows it learns how.
            return process.record();
        }
    }

    @Override
    public Page<ProcessRecord> list(Caller caller, ProcessQuery query) {
        caller.require(Scope.READ);
        query.sandboxId().ifPresent(id -> {
            Sandbox owned = sandboxes.get(caller, id);
            assert owned.id().equals(id);
        });
        Page<ProcessRecord> page = store.processes(caller.project(), query);
        if (page.items().stream().noneMatch(ProcessRecord::running)) {
            return page;
        }
        Map<ProcessId, NodeProcess> seen = new HashMap<>();
        Optional<BoxId> box = query.sandboxId().flatMap(sandboxes::live).map(LiveSandbox::box);
        if (box.isPresent() || query.sandboxId().isEmpty()) {
            node.processes().list(box).forEach(held -> seen.put(held.process().id(), held.process()));
        }
        return page.map(record -> {
            RunningProcess process = running.get(record.id());
            NodeProcess now = seen.get(record.id());
            return process == null ? record : now == null ? process.record() : process.seen(now);
        });
    }

    private BoxId box(ProcessRecord record) {
        return sandboxes.find(record.sandboxId()).map(Sandbox::box).orElseThrow(() -> expired(record.id()));
    }

    private static AtollException expired(ProcessId id) {
        return new AtollException(
                ErrorCode.OUTPUT_EXPIRED,
                "process: the output of " + id + " is not there any more",
                "Output is kept until retention removes it, or the machine is lost.",
                "The record of the process tells how it ended.");
    }

    /** What a failure to read means to the caller. */
    private AtollException unreadable(ProcessId id, AtollException e) {
        node.requireOwned(e);
        return e.code() == ErrorCode.NOT_FOUND || e.code() == ErrorCode.CONFLICT ? expired(id) : e;
    }

    @Override
    public ProcessFeed attach(Caller caller, ProcessRef ref, long afterSeq) {
        caller.require(Scope.READ);
        return attach(owned(caller, ref), afterSeq);
    }

    private ProcessFeed attach(ProcessRecord record, long afterSeq) {
        return new AttachedProcess(record, box(record), node, afterSeq, new AttachedProcess.Owner() {
            @Override
            public ProcessRecord now() {
                return known(record.id()).orElse(record);
            }

            @Override
            public void passed() {
                used(record);
            }

            @Override
            public ProcessRecord ended(ProcessEnd end, long stdoutBytes, long stderrBytes) {
                RunningProcess process = running.get(record.id());
                ProcessRecord known = process != null ? process.ended(end, stdoutBytes, stderrBytes) : now();
                Progress progress = new Progress(
                        stdoutBytes,
                        stderrBytes,
                        known.progress().stdinOffset(),
                        known.progress().stdinClosed());
                // Until a starting server has taken it over its record says that it runs.
                return known.running() ? known.with(known.pid(), known.startedAt(), progress, Optional.of(end)) : known;
            }

            @Override
            public AtollException unreadable(AtollException e) {
                return ProcessService.this.unreadable(record.id(), e);
            }
        });
    }

    @Override
    public OutputReader read(Caller caller, ProcessRef ref, OutputChoice choice, long offset, boolean follow) {
        caller.require(Scope.READ);
        ProcessRecord record = owned(caller, ref);
        BoxId box = box(record);
        return new OutputFollower(
                node,
                offset,
                from -> node.processes().read(box, record.id(), choice, from, follow),
                e -> unreadable(record.id(), e));
    }

    @Override
    public ProcessResult collect(Caller caller, ProcessRef ref, Duration limit) throws InterruptedException {
        caller.require(Scope.READ);
        ProcessRecord record = owned(caller, ref);
        Collecting collecting = new Collecting(attach(record, 0));
        if (limit.compareTo(FOREVER) >= 0) {
            collecting.run();
        } else {
            background.execute(collecting);
            collecting.stopAfter(limit);
        }
        return collecting.result(() -> refreshed(record));
    }

    /** Reads until the end, or until it is stopped, and sums up. */
    private static final class Collecting implements Runnable {
        private final ProcessFeed handle;
        private final Printing printing = new Printing();
        private final CompletableFuture<Optional<ProcessRecord>> done = new CompletableFuture<>();

        Collecting(ProcessFeed handle) {
            this.handle = handle;
        }

        @Override
        public void run() {
            try (handle) {
                Optional<ProcessRecord> end = Optional.empty();
                Optional<ProcessUpdate> update = handle.next();
                while (update.isPresent()) {
                    switch (update.get()) {
                        case ProcessUpdate.Started _ -> {}
                        case ProcessUpdate.Output output -> printing.add(output.stream(), output.data());
                        case ProcessUpdate.Gap gap -> printing.skip(gap.stream(), gap.bytes());
                        case ProcessUpdate.Ended ended -> end = Optional.of(ended.process());
                    }
                    update = handle.next();
                }
                done.complete(end);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                done.completeExceptionally(e);
            } catch (RuntimeException e) {
                done.completeExceptionally(e);
            }
        }

        void stopAfter(Duration limit) throws InterruptedException {
            try {
                Optional<ProcessRecord> end = done.get(limit.toNanos(), TimeUnit.NANOSECONDS);
                assert end.isPresent();
            } catch (TimeoutException e) {
                handle.close();
            } catch (ExecutionException e) {
                // Told by result().
                assert done.isCompletedExceptionally();
            }
        }

        ProcessResult result(Supplier<ProcessRecord> now) throws InterruptedException {
            try {
                ProcessRecord record = done.get().orElseGet(now);
                Progress progress = record.progress();
                return record.running()
                        ? new ProcessResult(record, printing.end(0, 0))
                        : new ProcessResult(record, printing.end(progress.stdoutBytes(), progress.stderrBytes()));
            } catch (ExecutionException e) {
                if (e.getCause() instanceof AtollException known) {
                    throw known;
                }
                if (e.getCause() instanceof InterruptedException interrupted) {
                    throw interrupted;
                }
                throw AtollException.internal("the output of a process could not be collected", e.getCause());
            }
        }
    }

    @Override
    public ProcessRecord await(Caller caller, ProcessRef ref, Duration limit) throws InterruptedException {
        caller.require(Scope.READ);
        ProcessRecord record = owned(caller, ref);
        long end = System.nanoTime() + nanos(limit);
        while (true) {
            RunningProcess process = running.get(record.id());
            long left = Math.max(0, end - System.nanoTime());
            if (process != null) {
                return process.await(left).orElseGet(() -> refreshed(record));
            }
            ProcessRecord now = known(record.id()).orElse(record);
            if (!now.running() || left == 0) {
                return now;
            }
            Thread.sleep(Duration.ofNanos(Math.min(left, TimeUnit.MILLISECONDS.toNanos(LOOK_AGAIN_MILLIS))));
        }
    }

    @Override
    public Written write(
            Caller caller, ProcessRef ref, OptionalLong offset, ByteBuffer data, boolean close, Duration limit)
            throws InterruptedException {
        caller.require(Scope.EXECUTE);
        ProcessRecord record = owned(caller, ref);
        if (!record.stdin()) {
            throw new AtollException(
                    ErrorCode.CONFLICT,
                    "process: " + record.id() + " has no input",
                    "It was started without stdin.",
                    "Start it with stdin: true.");
        }
        RunningProcess process = requireRunning(caller, record);
        used(record);
        try {
            return process.write(offset, data, close, nanos(limit));
        } catch (AtollException e) {
            throw refused(caller, process, e);
        }
    }

    private static long nanos(Duration limit) {
        return limit.compareTo(FOREVER) >= 0 ? FOREVER.toNanos() : limit.toNanos();
    }

    private RunningProcess requireRunning(Caller caller, ProcessRecord record) {
        RunningProcess process = running.get(record.id());
        if (process != null && process.record().running()) {
            return process;
        }
        ProcessRecord now = known(record.id()).orElse(record);
        if (now.running()) {
            LiveSandbox sandbox = sandboxes.requireRunning(caller, record.sandboxId());
            // On record and not taken over yet: the node knows it, or says that it does not.
            RunningProcess followed = follow(now, sandbox.box());
            followed.watch();
            return followed;
        }
        throw over(now);
    }

    private static AtollException over(ProcessRecord record) {
        String how = record.end().map(ProcessService::told).orElse("");
        return new AtollException(
                ErrorCode.CONFLICT,
                "process: " + record.id() + " has ended: " + how,
                how,
                "Start another; its output and record are still there.");
    }

    /** What the node's refusal means: the sandbox may have ended, or the process. */
    private RuntimeException refused(Caller caller, RunningProcess process, AtollException e) {
        if (e.code() != ErrorCode.NOT_FOUND && e.code() != ErrorCode.CONFLICT) {
            return e;
        }
        node.requireOwned(e);
        LiveSandbox sandbox = sandboxes.requireRunning(caller, process.sandboxId());
        RuntimeException told = sandboxes.translated(sandbox, e);
        if (told != e) {
            return told;
        }
        ProcessRecord now = refreshed(process.record());
        return now.running() && e.code() == ErrorCode.CONFLICT
                ? e
                : now.running() ? notFound(ProcessRef.of(now.id())) : over(now);
    }

    @Override
    public void signal(Caller caller, ProcessRef ref, int signal, SignalTarget target) {
        caller.require(Scope.EXECUTE);
        ProcessRecord record = owned(caller, ref);
        int checked = Signals.check(signal);
        Optional<RunningProcess> process = Optional.ofNullable(running.get(record.id()));
        if (process.isEmpty() && !known(record.id()).orElse(record).running()) {
            return;
        }
        used(record);
        try {
            node.processes()
                    .signal(
                            process.map(RunningProcess::box).orElseGet(() -> box(record)),
                            record.id(),
                            checked,
                            target);
        } catch (AtollException e) {
            node.requireOwned(e);
            // It ended in this moment.
            if (e.code() != ErrorCode.NOT_FOUND && e.code() != ErrorCode.CONFLICT) {
                throw e;
            }
        }
    }

    @Override
    public void resize(Caller caller, ProcessRef ref, TerminalSize size) {
        caller.require(Scope.EXECUTE);
        ProcessRecord record = owned(caller, ref);
        if (record.terminal().isEmpty()) {
            throw new AtollException(
                    ErrorCode.CONFLICT,
                    "process: " + record.id() + " has no terminal",
                    "It was started without pty.",
                    "Start it with pty: {cols, rows}.");
        }
        RunningProcess process = requireRunning(caller, record);
        used(record);
        try {
            node.processes().resize(process.box(), record.id(), size);
        } catch (AtollException e) {
            throw refused(caller, process, e);
        }
        process.resized(size);
        process.save();
    }

    @Override
    public ProcessRecord kill(Caller caller, ProcessRef ref) throws InterruptedException {
        ProcessRecord record = owned(caller, ref);
        signal(caller, ProcessRef.of(record.id()), Signals.KILL, SignalTarget.TREE);
        return await(caller, ProcessRef.of(record.id()), KILL_WAIT);
    }

    @Override
    public List<GuestProcess> guestProcesses(Caller caller, SandboxId sandboxId) {
        caller.require(Scope.READ);
        LiveSandbox sandbox = sandboxes.requireRunning(caller, sandboxId);
        try {
            return node.processes().guests(sandbox.box());
        } catch (AtollException e) {
            throw sandboxes.translated(sandbox, e);
        }
    }

    @Override
    public void signalGuest(Caller caller, SandboxId sandboxId, int pid, int signal) {
        LiveSandbox sandbox = sandboxes.requireRunning(caller, sandboxId);
        try {
            node.processes().signalGuest(sandbox.box(), pid, Signals.check(signal));
        } catch (AtollException e) {
            RuntimeException told = sandboxes.translated(sandbox, e);
            throw told == e && e.code() == ErrorCode.NOT_FOUND ? notFound(ProcessRef.of(sandboxId, pid)) : told;
        }
    }

    /** Processes that this server follows at the moment. */
    public int runningNow() {
        return running.size();
    }

    /**
     * Takes over what the node holds and what the store has without an end; those that ended while no server was there are recorded.
     * And ends the sandboxes whose main process ended meanwhile.
     */
    public void reconcile() {
        List<HeldProcess> held = node.processes().list(Optional.empty());
        Set<ProcessId> onNode = new HashSet<>();
        for (HeldProcess one : held) {
            onNode.add(one.process().id());
            takeOver(one);
        }
        for (ProcessRecord record : store.runningProcesses()) {
            if (!onNode.contains(record.id()) && !starting.contains(record.id()) && !running.containsKey(record.id())) {
                giveUp(record);
            }
        }
        // The others are asked for again: their calls broke with the connection.
        new ArrayList<>(running.values()).forEach(RunningProcess::watch);
        sandboxes.live().forEach(this::reconcileMain);
    }

    private void takeOver(HeldProcess held) {
        ProcessId id = held.process().id();
        if (held.process().spec().labels().containsKey(Pools.START_LABEL)) {
            // What its template starts in every sandbox: nobody's call, and the same id in all that come of one
            // snapshot.
            return;
        }
        Optional<ProcessRecord> known = known(id);
        if (known.isPresent() && !known.get().running()) {
            if (held.process().finish().isPresent()) {
                forgetter.forget(id, true);
            }
            return;
        }
        Optional<ProcessRecord> record = known.or(() -> fromNode(held));
        if (record.isEmpty() || starting.contains(id)) {
            // Of a sandbox that nobody knows: it goes with its box. Or its start will follow it.
            return;
        }
        ProcessRecord seen = follow(record.get(), held.box()).seen(held.process());
        assert seen.id().equals(id);
    }

    /** The record of a process whose first row was lost with the server. */
    private Optional<ProcessRecord> fromNode(HeldProcess held) {
        ProcessSpec spec = held.process().spec();
        return held.sandboxId()
                .flatMap(sandboxes::find)
                .map(sandbox -> new ProcessRecord(
                        spec.id(),
                        sandbox.project(),
                        sandbox.id(),
                        spec.argv(),
                        Optional.empty(),
                        spec.cwd(),
                        spec.user(),
                        spec.stdin(),
                        spec.timeout(),
                        spec.terminal(),
                        spec.labels(),
                        sandbox.main()
                                .filter(main -> main.id().equals(spec.id()))
                                .isPresent(),
                        held.process().pid(),
                        held.process().startedAt(),
                        Optional.of(held.process().startedAt()),
                        Progress.NONE,
                        Optional.empty()));
    }

    private boolean standsStill(SandboxId sandbox) {
        return sandboxes.live(sandbox).map(LiveSandbox::sandbox).map(Sandbox::state).stream()
                .anyMatch(SandboxState::standsStill);
    }

    /** Its processes go on: each is asked for again, and what was not sure while it was paused is looked at. */
    public void resumed(SandboxId sandbox) {
        new ArrayList<>(running.values())
                .stream().filter(process -> process.sandboxId().equals(sandbox)).forEach(RunningProcess::watch);
        if (postponed.remove(sandbox)) {
            background.execute(this::reconcileAgain);
        }
    }

    private void reconcileAgain() {
        try {
            reconcile();
        } catch (AtollException e) {
            // Away: it is compared again on the next connection.
            System.getLogger(ProcessService.class.getName())
                    .log(System.Logger.Level.DEBUG, "processes are looked at later: " + e.getMessage());
        }
    }

    private void giveUp(ProcessRecord record) {
        // It may have ended since the list was made.
        if (!known(record.id()).orElse(record).running()) {
            return;
        }
        if (standsStill(record.sandboxId())) {
            // Nobody can tell before it is resumed.
            postponed.add(record.sandboxId());
            return;
        }
        ProcessEnd end = sandboxEnd(record)
                .orElseGet(() -> ProcessEnd.madeUp(
                        ExitReason.LOST,
                        "The node does not know this process: the server stopped before it was started there, or the"
                                + " machine was restarted.",
                        record.createdAt(),
                        clock.instant()));
        RunningProcess process = follow(record, box(record));
        ProcessRecord ended = process.ended(
                end, record.progress().stdoutBytes(), record.progress().stderrBytes());
        assert !ended.running();
    }

    private void reconcileMain(LiveSandbox sandbox) {
        Optional<MainProcess> main = sandbox.sandbox().main().filter(MainProcess::endsSandbox);
        if (main.isEmpty() || sandbox.mainPending() || sandbox.sandbox().state() != SandboxState.RUNNING) {
            return;
        }
        Optional<ProcessRecord> record = known(main.get().id());
        if (record.isEmpty()) {
            sandboxes.mainExited(
                    sandbox, OptionalInt.empty(), "Its main process was never started: the server stopped before.");
        } else if (!record.get().running()) {
            mainEnded(record.get());
        }
    }

    private Optional<ProcessEnd> sandboxEnd(ProcessRecord record) {
        return sandboxes
                .find(record.sandboxId())
                .flatMap(Sandbox::end)
                .map(how -> ProcessEnd.madeUp(
                        how.reason() == EndReason.OUT_OF_MEMORY ? ExitReason.OUT_OF_MEMORY : ExitReason.SANDBOX_ENDED,
                        "The sandbox ended: " + how.detail(),
                        record.startedAt().orElse(record.createdAt()),
                        how.at()));
    }

    /** How a process ended that the node can't tell of any more; fails where the node should be asked again. */
    private ProcessEnd endWithoutNode(ProcessRecord record, AtollException e) {
        node.requireOwned(e);
        Optional<LiveSandbox> alive = sandboxes.live(record.sandboxId());
        if (alive.isPresent()) {
            // Finds out whether its box is gone, and ends it then.
            RuntimeException told = sandboxes.translated(alive.get(), e);
            assert told != null;
        }
        Instant started = record.startedAt().orElse(record.createdAt());
        return sandboxEnd(record)
                .orElseGet(() -> ProcessEnd.madeUp(
                        ExitReason.LOST, "The node can't tell any more: " + e.message(), started, clock.instant()));
    }
}
