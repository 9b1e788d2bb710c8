package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExitReason;
import atoll.core.node.Box;
import atoll.core.node.BoxSpec;
import atoll.core.node.ContextSpec;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.UpdateSandbox;
import atoll.core.template.LimitChanges;
import atoll.core.template.Limits;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/**
 * Rounds of random operations from several callers at once, with an engine that goes and comes and servers that die in between. Then
 * everything must add up: each sandbox in one legal state, each box owned by a sandbox or a pool, each execution with an end. A
 * failure names its seed; {@code -Datoll.test.seed=N} runs that one alone, though threads meet otherwise each time.
 */
class RandomOperationsTest {
    private static final int ROUNDS = 12;
    private static final int LIVES = 3;
    private static final int CALLERS = 4;
    private static final int OPERATIONS = 25;
    private static final int TROUBLES = 6;

    /** What a caller may be told while sandboxes end and the engine is away. */
    private static final Set<ErrorCode> EXPECTED = EnumSet.of(
            ErrorCode.SANDBOX_ENDED, ErrorCode.CONFLICT, ErrorCode.NODE_UNAVAILABLE, ErrorCode.SANDBOX_NOT_FOUND);

    @Test
    void whatever_happens_nothing_is_stuck_or_leaked() throws Exception {
        Long only = Long.getLong("atoll.test.seed");
        long first = only == null ? System.nanoTime() : only;
        for (long seed = first; seed < first + (only == null ? ROUNDS : 1); seed++) {
            try {
                new Round(seed).run();
            } catch (Exception | AssertionError e) {
                throw new AssertionError("failing seed: " + seed, e);
            }
        }
    }

    private static final class Round {
        private final long seed;
        /** Done or failed by all callers in this life of the server: by it the troubles are spread. */
        private final AtomicInteger operations = new AtomicInteger();

        private final CoreFixture fixture = new CoreFixture(
                        Map.of("pool.depth", "2", "pool.refill_quiet_millis", "1", "node.patience_seconds", "20"))
                .ready();

        Round(long seed) {
            this.seed = seed;
        }

        void run() throws Exception {
            try (fixture;
                    ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
                List<OneCaller> callers = new ArrayList<>();
                for (int i = 0; i < CALLERS; i++) {
                    callers.add(new OneCaller(fixture, new Random(seed * 31 + i), operations));
                }
                for (int life = 0; life < LIVES; life++) {
                    operations.set(0);
                    List<Callable<Boolean>> tasks = new ArrayList<>(callers);
                    tasks.add(new Engine(fixture, new Random(seed * 37 + life), operations));
                    for (Future<Boolean> task : threads.invokeAll(tasks)) {
                        assertThat(task.get()).isTrue();
                    }
                    orphan();
                    fixture.restart();
                }
                fixture.node.open("gate");
                check();
                for (OneCaller caller : callers) {
                    caller.lookAgain();
                }
                for (Sandbox sandbox : fixture.store.liveSandboxes()) {
                    Sandbox deleted = fixture.core().sandboxes().delete(fixture.caller(), sandbox.id());
                    assertThat(deleted.state()).isEqualTo(SandboxState.ENDED);
                }
                check();
                assertThat(fixture.store.liveSandboxes()).isEmpty();
            }
        }

        /** A box that is started for a server that dies before it hears of it. */
        private void orphan() {
            BoxSpec spec = new BoxSpec(
                    "a".repeat(64),
                    Limits.DEFAULT,
                    List.of(ContextSpec.of(ContextId.random(), Language.PYTHON)),
                    Map.of());
            assertThat(fixture.node.createBox(BoxId.random(), spec).sandboxId()).isEmpty();
        }

        private void check() {
            fixture.full();
            Eventually.until(() -> fixture.store.runningExecutions().isEmpty(), fixture.store::runningExecutions);
            Eventually.until(() -> fixture.node.unacknowledged() == 0, fixture.node::unacknowledged);
            Eventually.until(this::addsUp, this::accounts);
            for (Sandbox sandbox : fixture.store.liveSandboxes()) {
                assertThat(sandbox.state()).isEqualTo(SandboxState.RUNNING);
                Box box = fixture.node.box(sandbox.box()).orElseThrow();
                assertThat(box.sandboxId()).contains(sandbox.id());
                assertThat(box.limits()).contains(sandbox.limits());
            }
        }

        private boolean addsUp() {
            int pooled = fixture.core().status().pools().stream()
                    .mapToInt(pool -> pool.ready() + pool.starting() + pool.prepared())
                    .sum();
            return fixture.node.liveBoxes()
                            == pooled + fixture.store.liveSandboxes().size()
                    && fixture.core().status().liveSandboxes()
                            == fixture.store.liveSandboxes().size();
        }

        private String accounts() {
            return fixture.node.liveBoxes() + " boxes; " + fixture.store.liveSandboxes() + "; "
                    + fixture.core().status();
        }
    }

    /** The engine is restarted now and then, and boxes die by themselves. */
    private record Engine(CoreFixture fixture, Random random, AtomicInteger operations) implements Callable<Boolean> {
        @Override
        public Boolean call() {
            for (int i = 0; i < TROUBLES; i++) {
                int from = i * CALLERS * OPERATIONS / TROUBLES;
                Eventually.until(() -> operations.get() >= from, operations::get);
                if (random.nextBoolean()) {
                    fixture.node.goAway();
                    Eventually.until(() -> !fixture.core().status().nodeConnected(), fixture.core()::status);
                    fixture.node.comeBack();
                } else {
                    List<Sandbox> live = fixture.store.liveSandboxes();
                    if (!live.isEmpty()) {
                        fixture.node.end(
                                live.get(random.nextInt(live.size())).box(), EndReason.CRASHED, "it broke down");
                    }
                }
            }
            return true;
        }
    }

    /** Makes sandboxes, works in them, and knows what must be in them. */
    private static final class OneCaller implements Callable<Boolean> {
        private static final class Mine {
            final SandboxId id;
            /** The values that its {@code x} may have: the last that was acknowledged, and those whose answer was lost. */
            final List<String> possible = new ArrayList<>();

            Mine(SandboxId id, String value) {
                this.id = id;
                possible.add(value);
            }
        }

        private final CoreFixture fixture;
        private final Random random;
        private final AtomicInteger operations;
        private final List<Mine> mine = new ArrayList<>();
        private int values;

        OneCaller(CoreFixture fixture, Random random, AtomicInteger operations) {
            this.operations = operations;
            this.fixture = fixture;
            this.random = random;
        }

        @Override
        public Boolean call() throws Exception {
            for (int i = 0; i < OPERATIONS; i++) {
                try {
                    one();
                } catch (AtollException e) {
                    if (!EXPECTED.contains(e.code())) {
                        throw e;
                    }
                } finally {
                    int done = operations.incrementAndGet();
                    assert done > 0;
                }
            }
            return true;
        }

        private void one() throws Exception {
            if (mine.isEmpty() || random.nextInt(6) == 0) {
                String value = "v" + values++;
                ExecutionOutcome made = fixture.run("set x " + value);
                if (made.exitReason() == ExitReason.COMPLETED) {
                    mine.add(new Mine(made.sandboxId(), value));
                }
                return;
            }
            Mine one = mine.get(random.nextInt(mine.size()));
            switch (random.nextInt(8)) {
                case 0 -> {
                    mine.remove(one);
                    Sandbox deleted = fixture.core().sandboxes().delete(fixture.caller(), one.id);
                    assertThat(deleted.state()).isEqualTo(SandboxState.ENDED);
                }
                case 1 -> leaveRunning(one);
                case 2 -> change(one);
                case 3, 4 -> set(one);
                default -> look(one);
            }
        }

        private void set(Mine one) throws Exception {
            String value = "v" + values++;
            one.possible.add(value);
            if (fixture.run(CodeExecRequest.of("set x " + value).in(one.id)).exitReason() == ExitReason.COMPLETED) {
                one.possible.clear();
                one.possible.add(value);
            }
        }

        private void look(Mine one) throws Exception {
            ExecutionOutcome outcome = fixture.run(CodeExecRequest.of("get x").in(one.id));
            if (outcome.exitReason() == ExitReason.COMPLETED) {
                assertThat(one.possible).contains(outcome.output().text());
            }
        }

        private void leaveRunning(Mine one) throws Exception {
            // Its reader goes; it waits for the end of the round, over the deaths of its servers.
            try (ExecutionHandle handle = fixture.start(
                    CodeExecRequest.of("print a\nwait gate\nprint b").in(one.id).withLanguage("bash"))) {
                assertThat(handle.sandboxId()).isEqualTo(one.id);
            }
        }

        private void change(Mine one) {
            LimitChanges cpu = new LimitChanges(
                    OptionalLong.empty(),
                    OptionalInt.of(100 * (1 + random.nextInt(9))),
                    OptionalLong.empty(),
                    OptionalInt.empty(),
                    OptionalInt.empty());
            Sandbox changed = fixture.core()
                    .sandboxes()
                    .update(fixture.caller(), one.id, new UpdateSandbox(cpu, Map.of("n", Optional.of("" + values))));
            assertThat(changed.limits().cpuMillis()).isEqualTo(cpu.cpuMillis().orElseThrow());
        }

        /** Those that did not end have their state. */
        void lookAgain() throws Exception {
            for (Mine one : mine) {
                try {
                    look(one);
                } catch (AtollException e) {
                    assertThat(e.code()).isEqualTo(ErrorCode.SANDBOX_ENDED);
                }
            }
        }
    }
}
