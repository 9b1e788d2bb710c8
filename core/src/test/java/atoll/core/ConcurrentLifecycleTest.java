package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExitReason;
import atoll.core.node.Box;
import atoll.core.node.BoxState;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.IfExists;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.NewSandbox;
import atoll.core.sandbox.OnTimeout;
import atoll.core.sandbox.Room;
import atoll.core.sandbox.Run;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxService;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Source;
import atoll.core.sandbox.Term;
import atoll.core.sandbox.UpdateSandbox;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.snapshot.SnapshotState;
import atoll.core.template.LimitChanges;
import atoll.core.testing.Eventually;
import atoll.core.testing.FakeNode;
import atoll.core.testing.FakeSealing;
import atoll.core.testing.Interposer;
import atoll.core.testing.MemoryFiles;
import atoll.core.testing.MemoryStore;
import atoll.core.testing.MovableClock;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/**
 * Every pair of operations on one sandbox: the first is stopped before and after each call that it makes to store and node, there the
 * second one begins and goes as far as it can, and then the first goes on, fails or dies with its whole server. Afterwards
 * everything must add up. And the same with operations, points and troubles drawn by chance; a failure names its seed, and
 * {@code -Datoll.test.seed=N} runs that one alone.
 */
class ConcurrentLifecycleTest {
    private static final int RANDOM_ROUNDS = 2000;
    private static final int RANDOM_STEPS = 3;

    /** What is done to a sandbox. */
    private enum Operation {
        PAUSE,
        RESUME,
        USE,
        EXTEND,
        CHANGE,
        EXPIRE,
        ROLL_BACK,
        COPY,
        DELETE
    }

    /** What becomes of the first operation at the point where the second one has begun. */
    private enum Trouble {
        NONE,
        FAILURE,
        ENGINE_RESTART,
        DEATH
    }

    /** What a caller may be told, whatever the other one does. */
    private static final Set<ErrorCode> TOLD = EnumSet.of(ErrorCode.SANDBOX_ENDED, ErrorCode.CONFLICT);

    private static AtollException failure() {
        return new AtollException(ErrorCode.NODE_FULL, "made to fail", "", "It is a test.");
    }

    private final FakeNode node = new FakeNode();
    private final MemoryStore store = new MemoryStore();
    private final MovableClock clock = new MovableClock();
    private final Settings settings = Settings.parse(Map.of(
            "pool.depth", "0", "pool.max_prepared", "0", "node.patience_seconds", "20", "sandboxes.max", "1000"));
    private Interposer life = new Interposer(store, node);
    private AtollCore core = start();
    private int lives;

    @AfterEach
    void close() {
        core.close();
    }

    private AtollCore start() {
        life = new Interposer(store, node);
        AtollCore started = AtollCore.start(
                settings,
                life.store(),
                life.node(),
                clock,
                Metrics.NONE,
                new byte[32],
                new Installation(new FakeSealing(), new MemoryFiles()));
        started.ensureKey("a-key", "test");
        try {
            assertThat(started.awaitReady(Duration.ofSeconds(60))).isTrue();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
        return started;
    }

    private void nextLife() {
        lives++;
        life.die();
        core.close();
        core = start();
    }

    @Test
    void every_pair_of_operations_adds_up() throws Exception {
        int rounds = 0;
        for (SandboxState from : List.of(SandboxState.RUNNING, SandboxState.PAUSED)) {
            for (Operation first : Operation.values()) {
                for (Operation second : Operation.values()) {
                    for (Trouble trouble : List.of(Trouble.NONE, Trouble.FAILURE)) {
                        rounds += atEachPoint(from, first, Optional.of(second), trouble);
                    }
                }
            }
        }
        System.getLogger("test").log(System.Logger.Level.INFO, rounds + " rounds");
        assertThat(rounds).isGreaterThan(500);
    }

    @Test
    void a_server_that_dies_at_any_point_leaves_what_the_next_one_settles() throws Exception {
        int rounds = 0;
        for (SandboxState from : List.of(SandboxState.RUNNING, SandboxState.PAUSED)) {
            for (Operation first : Operation.values()) {
                rounds += atEachPoint(from, first, Optional.empty(), Trouble.DEATH);
                rounds += atEachPoint(from, first, Optional.of(Operation.PAUSE), Trouble.DEATH);
                rounds += atEachPoint(from, first, Optional.of(Operation.DELETE), Trouble.DEATH);
            }
        }
        System.getLogger("test").log(System.Logger.Level.INFO, rounds + " rounds, " + lives + " lives");
        assertThat(rounds).isGreaterThan(100);
    }

    @Test
    void an_engine_that_is_restarted_at_any_point_changes_nothing() throws Exception {
        int rounds = 0;
        for (SandboxState from : List.of(SandboxState.RUNNING, SandboxState.PAUSED)) {
            for (Operation first : Operation.values()) {
                rounds += atEachPoint(from, first, Optional.empty(), Trouble.ENGINE_RESTART);
            }
        }
        assertThat(rounds).isGreaterThan(50);
    }

    /** Returns how many points there were. */
    private int atEachPoint(SandboxState from, Operation first, Optional<Operation> second, Trouble trouble)
            throws Exception {
        for (int point = 0; ; point++) {
            String where = from + ", " + first + " with " + second + ", " + trouble + " at " + point;
            try {
                Round round = new Round(from, where);
                boolean reached = round.run(first, second, trouble, point);
                round.check();
                round.end();
                if (!reached) {
                    return point;
                }
            } catch (Exception | AssertionError e) {
                throw new AssertionError(where, e);
            }
        }
    }

    @Test
    void operations_and_troubles_by_chance_add_up() throws Exception {
        Long only = Long.getLong("atoll.test.seed");
        long firstSeed = only == null ? System.nanoTime() : only;
        for (long seed = firstSeed; seed < firstSeed + (only == null ? RANDOM_ROUNDS : 1); seed++) {
            Random random = new Random(seed);
            List<String> steps = new ArrayList<>();
            try {
                Round round =
                        new Round(random.nextBoolean() ? SandboxState.RUNNING : SandboxState.PAUSED, "seed " + seed);
                for (int i = 0; i < RANDOM_STEPS && round.isAlive(); i++) {
                    Operation first = any(random, Operation.values());
                    Optional<Operation> second =
                            random.nextInt(3) == 0 ? Optional.empty() : Optional.of(any(random, Operation.values()));
                    Trouble trouble = random.nextInt(20) == 0
                            ? Trouble.DEATH
                            : any(random, Trouble.NONE, Trouble.FAILURE, Trouble.ENGINE_RESTART);
                    int point = random.nextInt(14);
                    steps.add(first + " with " + second + ", " + trouble + " at " + point);
                    boolean reached = round.run(first, second, trouble, point);
                    steps.add(reached ? "reached" : "not reached");
                    round.check();
                }
                round.end();
            } catch (Exception | AssertionError e) {
                throw new AssertionError("failing seed: " + seed + ", " + steps, e);
            }
        }
    }

    @SafeVarargs
    private static <T> T any(Random random, T... values) {
        return values[random.nextInt(values.length)];
    }

    /** One sandbox, and what must be in it. */
    private final class Round {
        private final SandboxId id;
        private final Snapshot snapshot;
        private final List<SandboxId> copies = new ArrayList<>();
        /** Whether anything was done that ends it. */
        private volatile boolean mayEnd;
        /** Whether it may have been put back to the snapshot. */
        private volatile boolean mayBeBack;

        private String value = "first";
        private int values;

        Round(SandboxState from, String name) throws Exception {
            LifecycleChanges lifecycle = new LifecycleChanges(
                    Optional.of(Term.of(Duration.ofHours(1))),
                    Optional.empty(),
                    Optional.of(OnTimeout.PAUSE),
                    Optional.empty());
            Sandbox made = core.sandboxes()
                    .create(
                            caller(),
                            new CreateSandbox(
                                    Optional.of("python"),
                                    Optional.empty(),
                                    Map.of("A", "b"),
                                    Map.of("round", name.substring(0, Math.min(100, name.length()))),
                                    LimitChanges.NONE,
                                    Optional.empty(),
                                    Optional.of("the-one"),
                                    IfExists.FAIL,
                                    lifecycle,
                                    Optional.empty(),
                                    Optional.empty()));
            id = made.id();
            LiveSandbox live = service().live(id).orElseThrow();
            snapshot = new Snapshot(
                            SnapshotId.random(),
                            made.project(),
                            Optional.empty(),
                            SnapshotKind.MEMORY,
                            Optional.of(id),
                            made.template(),
                            made.templateVersion(),
                            Optional.empty(),
                            made.limits(),
                            made.env(),
                            Source.held(live),
                            Map.of(),
                            SnapshotState.CREATING,
                            0,
                            Duration.ZERO,
                            clock.instant(),
                            Optional.empty(),
                            "")
                    .ready(1, Duration.ZERO);
            set("back");
            store.insertSnapshot(snapshot);
            assertThat(node.createSnapshot(made.box(), snapshot.id(), SnapshotKind.MEMORY, Map.of())
                            .id())
                    .isEqualTo(snapshot.id());
            set(value);
            if (from == SandboxState.PAUSED) {
                assertThat(core.sandboxes().pause(caller(), id).state()).isEqualTo(SandboxState.PAUSED);
            }
        }

        private void set(String to) throws Exception {
            assertThat(executed("set x " + to)).isEmpty();
        }

        private String executed(String code) throws Exception {
            try (ExecutionHandle handle = core.codeExecution()
                    .start(caller(), CodeExecRequest.of(code).in(id))) {
                ExecutionOutcome outcome = handle.await();
                assertThat(outcome.exitReason())
                        .as(outcome.toString())
                        .isIn(ExitReason.COMPLETED, ExitReason.LOST, ExitReason.SANDBOX_ENDED);
                return outcome.output().text();
            }
        }

        boolean isAlive() {
            return sandbox().state() != SandboxState.ENDED;
        }

        private Sandbox sandbox() {
            return core.sandboxes().get(caller(), id);
        }

        /** Whether the point was reached. */
        boolean run(Operation first, Optional<Operation> second, Trouble trouble, int point) throws Exception {
            List<Thread> threads = new ArrayList<>();
            List<Throwable> failures = new ArrayList<>();
            boolean[] reached = new boolean[1];
            Interposer mine = life;
            Thread one = Thread.ofVirtual().name("first").unstarted(() -> {
                mine.arm(point, () -> {
                    second.ifPresent(operation -> {
                        Thread two =
                                Thread.ofVirtual().name("second").start(() -> attempt(operation, trouble, failures));
                        threads.add(two);
                        awaitStuck(two);
                    });
                    switch (trouble) {
                        case NONE -> {}
                        case FAILURE -> throw failure();
                        case ENGINE_RESTART -> {
                            node.goAway();
                            node.comeBack();
                        }
                        case DEATH -> mine.die();
                    }
                });
                attempt(first, trouble, failures);
                reached[0] = mine.disarm();
            });
            one.start();
            join(one);
            for (Thread thread : threads) {
                join(thread);
            }
            for (Throwable failure : failures) {
                throw new AssertionError(failure);
            }
            if (trouble == Trouble.DEATH) {
                nextLife();
            }
            return reached[0];
        }

        /** Whoever follows code in a sandbox that is paused under it hears nothing until it is resumed. */
        private void join(Thread thread) throws InterruptedException {
            for (int tries = 0; !thread.join(Duration.ofMillis(20)); tries++) {
                assertThat(tries).as(thread + " in " + thread.getState()).isLessThan(3000);
                try {
                    if (sandbox().state() == SandboxState.PAUSED) {
                        assertThat(core.sandboxes()
                                        .resume(caller(), id, Optional.empty())
                                        .id())
                                .isEqualTo(id);
                    }
                } catch (AtollException e) {
                    // Its server is dead, and all who wait for it fail soon; or it was deleted.
                    assertThat(e.code()).isIn(ErrorCode.SHUTTING_DOWN, ErrorCode.SANDBOX_ENDED);
                }
            }
        }

        /** Until it has ended, or waits for somebody. */
        private static void awaitStuck(Thread thread) {
            for (int waiting = 0; waiting < 3 && thread.isAlive(); ) {
                Thread.State state = thread.getState();
                boolean waits = state == Thread.State.WAITING
                        || state == Thread.State.TIMED_WAITING
                        || state == Thread.State.BLOCKED;
                waiting = waits ? waiting + 1 : 0;
                LockSupport.parkNanos(20_000);
            }
        }

        private void attempt(Operation operation, Trouble trouble, List<Throwable> failures) {
            try {
                apply(operation);
            } catch (AtollException e) {
                boolean made = trouble != Trouble.NONE
                        && EnumSet.of(ErrorCode.NODE_FULL, ErrorCode.SHUTTING_DOWN, ErrorCode.NODE_UNAVAILABLE)
                                .contains(e.code());
                if (!made && !TOLD.contains(e.code())) {
                    synchronized (failures) {
                        failures.add(e);
                    }
                }
            } catch (Throwable e) {
                synchronized (failures) {
                    failures.add(e);
                }
            }
        }

        private void apply(Operation operation) throws Exception {
            Caller caller = caller();
            switch (operation) {
                case PAUSE ->
                    assertThat(core.sandboxes().pause(caller, id).state()).isEqualTo(SandboxState.PAUSED);
                case RESUME ->
                    assertThat(core.sandboxes()
                                    .resume(caller, id, Optional.empty())
                                    .state())
                            .isEqualTo(SandboxState.RUNNING);
                case USE -> look(executed("get x"));
                case EXTEND ->
                    assertThat(core.sandboxes()
                                    .extend(caller, id, Term.of(Duration.ofHours(1 + values++)))
                                    .lifecycle()
                                    .lifetime())
                            .isPresent();
                case CHANGE -> change(caller);
                case EXPIRE -> {
                    clock.advance(Duration.ofHours(100));
                    core.expire();
                }
                case ROLL_BACK -> {
                    mayBeBack = true;
                    LiveSandbox live = service().requireLive(caller, id);
                    assertThat(service().rollback(live, snapshot).state()).isEqualTo(SandboxState.RUNNING);
                }
                case COPY -> copy();
                case DELETE -> {
                    mayEnd = true;
                    assertThat(core.sandboxes().delete(caller, id).state()).isEqualTo(SandboxState.ENDED);
                }
            }
        }

        private void look(String seen) {
            // An execution that ended with its sandbox, or was rolled back, has printed nothing.
            assertThat(seen).isIn(mayBeBack ? List.of(value, "back", "") : List.of(value, ""));
            assertThat(seen.isEmpty() && !mayEnd && !mayBeBack)
                    .as("nothing printed")
                    .isFalse();
        }

        private void change(Caller caller) {
            LimitChanges cpu = new LimitChanges(
                    OptionalLong.empty(),
                    OptionalInt.of(100 + values++),
                    OptionalLong.empty(),
                    OptionalInt.empty(),
                    OptionalInt.empty());
            Sandbox changed =
                    core.sandboxes().update(caller, id, new UpdateSandbox(cpu, Map.of("n", Optional.of("" + values))));
            assertThat(changed.id()).isEqualTo(id);
        }

        private void copy() {
            SandboxId copy = SandboxId.random();
            synchronized (copies) {
                copies.add(copy);
            }
            NewSandbox wanted = new NewSandbox(
                    copy,
                    ProjectId.DEFAULT,
                    snapshot.limits(),
                    snapshot.env(),
                    Map.of(),
                    Optional.empty(),
                    Optional.empty(),
                    settings.lives().defaults());
            Source source = new Source(
                    Run.How.SNAPSHOT,
                    snapshot.template(),
                    snapshot.templateVersion(),
                    snapshot.limits(),
                    snapshot.env(),
                    SnapshotKind.MEMORY,
                    snapshot.contexts(),
                    Optional.of(snapshot.id()),
                    Optional.empty(),
                    new Sandbox.Origin(Optional.of(id), Optional.of(snapshot.id())));
            LiveSandbox made;
            try (Room room = service().reserve(caller(), 1)) {
                made = service().makeFrom(wanted, source, room);
            }
            // Its time may be up already.
            assertThat(made.sandbox().state()).isNotIn(SandboxState.CREATING, SandboxState.ENDED);
            assertThat(made.context(snapshot.contexts().getFirst().id())).isPresent();
        }

        /** It is settled, one and the same on record, in memory and on the node, and has its state. */
        void check() throws Exception {
            Eventually.until(() -> isInTime() && isSettled(id), () -> story(id));
            Sandbox now = sandbox();
            if (!mayEnd) {
                assertThat(now.state()).as(now.toString()).isNotEqualTo(SandboxState.ENDED);
            }
            assertRuns(now);
            if (now.state() != SandboxState.ENDED) {
                look(executed("get x"));
                Sandbox used = sandbox();
                assertThat(used.state()).isEqualTo(SandboxState.RUNNING);
                assertRuns(used);
                Box box = node.box(used.box()).orElseThrow();
                Eventually.until(
                        () -> node.box(used.box())
                                .orElseThrow()
                                .limits()
                                .equals(Optional.of(sandbox().limits())),
                        () -> story(id));
                assertThat(box.deadline()).isEmpty();
                assertThat(node.envOf(used.box())).containsEntry("A", "b");
            }
            for (SandboxId copy : List.copyOf(copies)) {
                Optional<Sandbox> made = store.sandbox(copy);
                if (made.isPresent()) {
                    Eventually.until(() -> isSettled(copy), () -> story(copy));
                    Optional<EndReason> end =
                            core.sandboxes().get(caller(), copy).end().map(Sandbox.End::reason);
                    assertThat(end)
                            .isIn(Optional.empty(), Optional.of(EndReason.START_FAILED), Optional.of(EndReason.LOST));
                }
            }
        }

        /** What is to happen to it at its time has happened. */
        private boolean isInTime() {
            core.expire();
            Sandbox now = sandbox();
            return now.state() != SandboxState.RUNNING
                    || (now.expiresAt().orElseThrow().isAfter(clock.instant())
                            && now.lastActiveAt().plus(Duration.ofHours(1)).isAfter(clock.instant()));
        }

        private boolean isSettled(SandboxId which) {
            Sandbox now = core.sandboxes().get(caller(), which);
            Optional<Box> box = node.box(now.box());
            boolean same = store.sandbox(which)
                    .filter(stored -> stored.active(now.lastActiveAt()).equals(now))
                    .isPresent();
            return same
                    && switch (now.state()) {
                        case RUNNING -> box.map(Box::state).equals(Optional.of(BoxState.READY));
                        case PAUSED -> box.map(Box::state).equals(Optional.of(BoxState.PAUSED));
                        case ENDED -> box.isEmpty();
                        case PAUSING, RESUMING -> nudged(which);
                        case CREATING -> false;
                    };
        }

        /** What was left open in a server that lives on is settled by whoever comes next. */
        private boolean nudged(SandboxId which) {
            try {
                Sandbox running = core.sandboxes().resume(caller(), which, Optional.empty());
                assertThat(running.state()).isEqualTo(SandboxState.RUNNING);
            } catch (AtollException | InterruptedException e) {
                return false;
            }
            return false;
        }

        private void assertRuns(Sandbox now) {
            List<Run> runs = store.runs(id);
            String shown = runs.toString();
            assertThat(runs.getLast().id()).as(shown).isEqualTo(now.run());
            assertThat(runs.stream().filter(run -> run.end().isEmpty()).count())
                    .as(shown)
                    .isEqualTo(now.state() == SandboxState.RUNNING ? 1 : 0);
            @Nullable Run before = null;
            for (Run run : runs) {
                if (run.how() == Run.How.RESUME) {
                    assertThat(before).as(shown).isNotNull();
                    assertThat(run.from())
                            .as(shown)
                            .isEqualTo(before.end().orElseThrow().into());
                }
                before = run;
            }
        }

        private String story(SandboxId which) {
            Sandbox now = core.sandboxes().get(caller(), which);
            return now + "\nstored: " + store.sandbox(which) + "\nbox: " + node.box(now.box());
        }

        /** Nothing of it is left. */
        void end() throws Exception {
            for (Sandbox sandbox : store.liveSandboxes()) {
                assertThat(core.sandboxes().delete(caller(), sandbox.id()).state())
                        .isEqualTo(SandboxState.ENDED);
            }
            store.removeSnapshot(snapshot.id());
            node.deleteSnapshot(snapshot.id());
            Eventually.until(() -> node.boxes().isEmpty(), () -> node.boxes());
            assertThat(node.stored().pauses()).isZero();
        }
    }

    private Caller caller() {
        return core.keys().authenticate("a-key");
    }

    private SandboxService service() {
        return core.service();
    }
}
