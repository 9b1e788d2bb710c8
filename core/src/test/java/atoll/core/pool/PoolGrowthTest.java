package atoll.core.pool;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.BoxId;
import atoll.core.Metrics;
import atoll.core.ProjectId;
import atoll.core.ServerStatus.PoolStatus;
import atoll.core.Settings;
import atoll.core.node.Box;
import atoll.core.node.BoxState;
import atoll.core.template.Limits;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import atoll.core.testing.Eventually;
import atoll.core.testing.FakeNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** What pools do as time goes by; here it goes by when the test says so. */
class PoolGrowthTest {
    private static final String TEMPLATE = "typescript-bun";
    private static final long SECOND = 1_000_000_000L;

    private final Settings settings = Settings.parse(Map.of(
            "pool.depth", "0",
            "pool.depth.typescript-bun", "2",
            "pool.max_depth", "6",
            "pool.max_prepared", "3",
            "pool.refill_quiet_millis", "0"));
    private final FakeNode node = new FakeNode();
    private final AtomicLong nanos = new AtomicLong();
    private final ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor();
    private final TemplateCatalog catalog = new TemplateCatalog(settings);
    private final Pools pools = new Pools(catalog, node, settings, Metrics.NONE, threads, nanos::get);

    PoolGrowthTest() {
        catalog.imagesSeen(node.images());
        pools.keepOnly(Set.of());
        pools.start();
        awaitStock(2, 1);
    }

    @AfterEach
    void close() {
        pools.close();
        threads.shutdownNow();
        node.close();
    }

    private PoolStatus pool() {
        return pools.status().stream()
                .filter(status -> status.template().equals(TEMPLATE))
                .findFirst()
                .orElseThrow();
    }

    private void awaitStock(int ready, int prepared) {
        Eventually.until(
                () -> pool().ready() == ready && pool().prepared() == prepared && pool().starting() == 0, this::pool);
    }

    /** Time goes by, and the pool looks at its clock. */
    private void pass(long seconds) {
        nanos.addAndGet(seconds * SECOND);
        pools.start();
    }

    private Template template() {
        return catalog.byId(ProjectId.DEFAULT, TEMPLATE);
    }

    private void takeAtOnce(int count) throws Exception {
        List<Future<Taken>> calls = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            calls.add(threads.submit(() -> pools.take(template())));
        }
        Set<BoxId> taken = new HashSet<>();
        for (Future<Taken> call : calls) {
            taken.add(call.get().box().id());
        }
        assertThat(taken).hasSize(count);
        taken.forEach(pools::handedOver);
    }

    @Test
    void a_pool_is_as_deep_as_the_largest_burst_and_shrinks_one_by_one_when_that_is_long_past() throws Exception {
        takeAtOnce(5);
        pass(1);
        Eventually.until(() -> pool().ready() == 5, this::pool);
        assertThat(pool().target()).isEqualTo(5);
        pass(Demand.SECONDS - 20);
        assertThat(pool().target()).isEqualTo(5);
        pass(30);
        assertThat(pool().target()).isEqualTo(2);
        for (int left = 4; left >= 2; left--) {
            int expected = left;
            Eventually.until(() -> pool().ready() == expected, this::pool);
            pass(10);
        }
        // How many prepared boxes the burst used, and so how many are given up now, one at a time, is up to the
        // scheduler.
        Eventually.until(
                () -> {
                    pass(10);
                    return pool().ready() == 2 && pool().prepared() == 1;
                },
                this::pool);
        pass(1_000);
        awaitStock(2, 1);
    }

    @Test
    void a_burst_beyond_the_most_makes_a_pool_no_deeper() throws Exception {
        takeAtOnce(12);
        pass(1);
        Eventually.until(() -> pool().ready() == 6 && pool().starting() == 0, this::pool);
        assertThat(pool().target()).isEqualTo(6);
    }

    @Test
    void prepared_boxes_are_as_many_as_are_used_at_once() {
        for (int i = 0; i < 3; i++) {
            Optional<BoxId> lent = pools.prepared(TEMPLATE, settings.limits());
            lent.ifPresent(pools::handedOver);
        }
        pass(1);
        awaitStock(2, 3);
        pass(Demand.SECONDS + 10);
        awaitStock(2, 2);
        pass(10);
        awaitStock(2, 1);
        pass(1_000);
        awaitStock(2, 1);
    }

    @Test
    void a_prepared_box_that_nobody_used_is_removed() {
        BoxId lent = pools.prepared(TEMPLATE, settings.limits()).orElseThrow();
        assertThat(pools.owns(lent)).isTrue();
        assertThat(node.box(lent)).map(Box::state).contains(BoxState.PREPARED);
        pools.handedOver(lent);
        Eventually.until(() -> node.box(lent).isEmpty() && !pools.owns(lent), node::boxes);
    }

    @Test
    void a_prepared_box_is_lent_for_limits_that_fit_only() {
        Limits own = settings.limits();
        Limits otherDisk = new Limits(
                own.memoryBytes(), own.cpuMillis(), own.diskBytes() * 2, own.maxProcesses(), own.maxOpenFiles());
        assertThat(pools.prepared(TEMPLATE, otherDisk)).isEmpty();
        assertThat(pools.prepared("python", own)).isEmpty();
        assertThat(pools.prepared("unknown", own)).isEmpty();
        assertThat(pools.prepared(TEMPLATE, own)).isPresent();
    }
}
