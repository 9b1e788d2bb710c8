package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.ServerStatus.PoolStatus;
import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.node.Box;
import atoll.core.node.Image;
import atoll.core.sandbox.EndReason;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class PoolTest {
    private static final Map<String, String> FOUR_BUN = Map.of(
            "pool.depth", "0", "pool.depth.typescript-bun", "4", "pool.starts", "3", "node.patience_seconds", "5");

    private CoreFixture fixture = new CoreFixture(FOUR_BUN).ready().full();

    @AfterEach
    void close() {
        fixture.close();
    }

    private PoolStatus pool(String template) {
        return fixture.core().status().pools().stream()
                .filter(status -> status.template().equals(template))
                .findFirst()
                .orElseThrow();
    }

    private PoolStatus pool() {
        return pool("typescript-bun");
    }

    @Test
    void a_pool_fills_itself_and_no_further() {
        assertThat(fixture.node.started()).isEqualTo(4);
        assertThat(pool().ready()).isEqualTo(4);
    }

    @Test
    void a_taken_box_is_replaced_in_the_background() throws Exception {
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        assertThat(pool().hits()).isEqualTo(1);
        fixture.full();
        assertThat(fixture.node.started()).isEqualTo(5);
    }

    @Test
    void without_a_pool_a_sandbox_is_started_from_nothing() throws Exception {
        ExecutionOutcome outcome = fixture.run(CodeExecRequest.of("print x").withLanguage("python"));
        assertThat(outcome.output().text()).isEqualTo("x");
        assertThat(pool("python").misses()).isEqualTo(Map.of("disabled", 1L));
        assertThat(pool("python").ready()).isZero();
    }

    @Test
    void twenty_at_once_are_all_served_with_bounded_starts() throws Exception {
        fixture.node.holdStarts();
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Future<ExecutionOutcome>> calls = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                calls.add(threads.submit(() -> fixture.run("print x")));
            }
            Eventually.until(() -> pool().starting() >= 16 && pool().hits() == 4, this::pool);
            Eventually.until(() -> fixture.node.startsNow() == 3, fixture.node::startsNow);
            fixture.node.releaseStarts();
            Set<SandboxId> sandboxes = new HashSet<>();
            for (Future<ExecutionOutcome> call : calls) {
                sandboxes.add(call.get().sandboxId());
            }
            assertThat(sandboxes).hasSize(20);
        }
        assertThat(fixture.node.mostStartsAtOnce()).isLessThanOrEqualTo(3);
        fixture.full();
        assertThat(fixture.node.started()).isEqualTo(24);
        assertThat(fixture.node.liveBoxes()).isEqualTo(24);
    }

    @Test
    void a_box_on_its_way_for_the_stock_goes_to_a_caller_who_waits() throws Exception {
        fixture.node.holdStarts();
        for (int i = 0; i < 4; i++) {
            assertThat(fixture.run("print x").exitReason().text()).isEqualTo("completed");
        }
        Eventually.until(() -> pool().starting() == 4, this::pool);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<ExecutionOutcome> call = threads.submit(() -> fixture.run("print y"));
            Eventually.until(() -> pool().misses().size() == 1, this::pool);
            assertThat(pool().starting()).isEqualTo(4);
            fixture.node.releaseStarts();
            assertThat(call.get().output().text()).isEqualTo("y");
        }
        fixture.full();
        assertThat(fixture.node.started()).isEqualTo(9);
    }

    @Test
    void a_box_that_died_in_the_pool_is_noticed_and_replaced() {
        Box first = fixture.node.boxes().getFirst();
        fixture.node.end(first.id(), EndReason.CRASHED, "it broke");
        Eventually.until(() -> fixture.node.box(first.id()).isEmpty(), fixture.node::boxes);
        fixture.full();
        assertThat(fixture.node.boxes()).extracting(Box::id).doesNotContain(first.id());
    }

    @Test
    void a_start_that_fails_is_told_to_its_caller_and_the_pool_heals() throws Exception {
        fixture.node.failStarts(new AtollException(ErrorCode.NODE_FULL, "no memory left", "", ""));
        for (int i = 0; i < 4; i++) {
            assertThat(fixture.run("print x").exitReason().text()).isEqualTo("completed");
        }
        assertThatThrownBy(() -> fixture.run("print x"))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.NODE_FULL));
        assertThat(pool().lastFailure()).contains("no memory left");
        fixture.node.failStarts(null);
        fixture.full();
        assertThat(pool().lastFailure()).isEmpty();
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
    }

    @Test
    void a_missing_image_is_named_and_used_once_it_is_there() throws Exception {
        fixture.close();
        fixture = new CoreFixture(FOUR_BUN);
        List<Image> images = fixture.node.images();
        fixture.node.setImages(List.of());
        fixture.ready();
        fixture.node.setImages(images);
        fixture.full();
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
    }

    @Test
    void the_pool_outlives_the_server() {
        Set<BoxId> before = new HashSet<>();
        fixture.node.boxes().forEach(box -> before.add(box.id()));
        fixture.restart();
        fixture.full();
        assertThat(fixture.node.boxes()).extracting(Box::id).containsExactlyInAnyOrderElementsOf(before);
        assertThat(fixture.node.started()).isEqualTo(4);
    }

    @Test
    void boxes_of_an_old_image_are_replaced() {
        Set<BoxId> before = new HashSet<>();
        fixture.node.boxes().forEach(box -> before.add(box.id()));
        List<Image> images = new ArrayList<>(fixture.node.images());
        Image old = images.getFirst();
        images.set(0, new Image(old.name(), "c".repeat(64), 1, old.languages(), Map.of()));
        fixture.node.setImages(images);
        fixture.restart();
        fixture.full();
        Eventually.until(
                () -> fixture.node.boxes().stream().noneMatch(box -> before.contains(box.id())), fixture.node::boxes);
    }

    @Test
    void the_number_of_live_sandboxes_is_bounded() throws Exception {
        fixture.close();
        fixture = new CoreFixture(Map.of("sandboxes.max", "2", "pool.depth", "0")).ready();
        SandboxId first = fixture.run("print").sandboxId();
        assertThat(fixture.run("print").sandboxId()).isNotEqualTo(first);
        assertThatThrownBy(() -> fixture.run("print"))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.QUOTA_EXCEEDED));
        assertThat(fixture.core().sandboxes().delete(fixture.caller(), first).end())
                .isPresent();
        assertThat(fixture.run("print").sandboxId()).isNotEqualTo(first);
    }
}
