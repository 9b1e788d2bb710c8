package atoll.core.testing;

import atoll.core.AtollCore;
import atoll.core.Caller;
import atoll.core.Installation;
import atoll.core.Metrics;
import atoll.core.ServerStatus.PoolStatus;
import atoll.core.Settings;
import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.node.Node;
import atoll.core.store.Store;
import java.time.Duration;
import java.util.Map;
import java.util.function.Consumer;

/** Core over a {@link FakeNode} and a store in memory, that can be stopped and started again over the same two. */
public final class CoreFixture implements AutoCloseable {
    public static final String KEY = "a-key-for-tests";

    public final FakeNode node = new FakeNode();
    public final MovableClock clock = new MovableClock();
    public final Store store;
    public final MemoryFiles files = new MemoryFiles();
    private final Settings settings;
    private final Node seen;
    private AtollCore core;

    public CoreFixture() {
        this(Map.of());
    }

    /** With settings by their names. */
    public CoreFixture(Map<String, String> settings) {
        this(settings, new MemoryStore());
    }

    public CoreFixture(Map<String, String> settings, Store store) {
        this(settings, store, _ -> {});
    }

    /** Over a node that {@code before} has done something to, before core starts anything there. */
    public CoreFixture(Map<String, String> settings, Consumer<FakeNode> before) {
        this(settings, new MemoryStore(), before);
    }

    private CoreFixture(Map<String, String> settings, Store store, Consumer<FakeNode> before) {
        before.accept(node);
        this.settings = Settings.parse(settings);
        this.store = store;
        this.seen = node;
        this.core = start();
    }

    private AtollCore start() {
        AtollCore started = AtollCore.start(
                settings, store, seen, clock, Metrics.NONE, new byte[32], new Installation(new FakeSealing(), files));
        started.ensureKey(KEY, "test");
        return started;
    }

    /** As after kill -9: nothing is finished, a new life begins. */
    public void restart() {
        core.close();
        core = start();
        ready();
    }

    public AtollCore core() {
        return core;
    }

    public CoreFixture ready() {
        try {
            if (!core.awaitReady(Duration.ofSeconds(20))) {
                throw new AssertionError("core did not get ready: " + core.status());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError(e);
        }
        return this;
    }

    /** Ready, and every pool full, with its golden snapshot and a prepared box where it has such. */
    public CoreFixture full() {
        Eventually.until(() -> core.status().pools().stream().allMatch(this::isFull), core::status);
        return this;
    }

    private boolean isFull(PoolStatus pool) {
        boolean beneath = pool.golden().isPresent()
                && pool.prepared() >= Math.min(1, settings.poolGrowth().maxPrepared());
        return pool.ready() >= pool.target() && (pool.target() == 0 || beneath);
    }

    public Caller caller() {
        return core.keys().authenticate(KEY);
    }

    public ExecutionHandle start(CodeExecRequest request) throws InterruptedException {
        return core.codeExecution().start(caller(), request);
    }

    public ExecutionOutcome run(CodeExecRequest request) throws InterruptedException {
        try (ExecutionHandle handle = start(request)) {
            return handle.await();
        }
    }

    public ExecutionOutcome run(String code) throws InterruptedException {
        return run(CodeExecRequest.of(code));
    }

    @Override
    public void close() {
        core.close();
        store.close();
    }
}
