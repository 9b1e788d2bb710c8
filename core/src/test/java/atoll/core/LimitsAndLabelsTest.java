package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.execution.CodeExecRequest;
import atoll.core.node.Box;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.UpdateSandbox;
import atoll.core.template.LimitChanges;
import atoll.core.template.Limits;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class LimitsAndLabelsTest {
    private static final long MIB = 1024 * 1024;
    private static final LimitChanges NO_CPU_LIMIT = new LimitChanges(
            OptionalLong.empty(), OptionalInt.of(0), OptionalLong.empty(), OptionalInt.empty(), OptionalInt.empty());

    private final CoreFixture fixture =
            new CoreFixture(Map.of("bounds.memory_mib", "1024", "node.patience_seconds", "1")).ready();

    @AfterEach
    void close() {
        fixture.close();
    }

    private static LimitChanges memory(long mib) {
        return new LimitChanges(
                OptionalLong.of(mib * MIB),
                OptionalInt.empty(),
                OptionalLong.empty(),
                OptionalInt.empty(),
                OptionalInt.empty());
    }

    private static LimitChanges disk(long mib) {
        return new LimitChanges(
                OptionalLong.empty(),
                OptionalInt.empty(),
                OptionalLong.of(mib * MIB),
                OptionalInt.empty(),
                OptionalInt.empty());
    }

    private Sandbox create(LimitChanges limits, Map<String, String> labels, Optional<String> key) throws Exception {
        return fixture.core()
                .sandboxes()
                .create(
                        fixture.caller(),
                        new CreateSandbox(Optional.of("python"), Optional.empty(), Map.of(), labels, limits, key));
    }

    private Sandbox create(LimitChanges limits) throws Exception {
        return create(limits, Map.of(), Optional.empty());
    }

    private Sandbox update(Sandbox sandbox, LimitChanges limits, Map<String, Optional<String>> labels) {
        return fixture.core().sandboxes().update(fixture.caller(), sandbox.id(), new UpdateSandbox(limits, labels));
    }

    private Limits onNode(Sandbox sandbox) {
        return fixture.node.box(sandbox.box()).flatMap(Box::limits).orElseThrow();
    }

    private Sandbox stored(Sandbox sandbox) {
        return fixture.store.sandbox(sandbox.id()).orElseThrow();
    }

    private Map<String, Long> misses() {
        return fixture.core().status().pools().stream()
                .filter(pool -> pool.template().equals("python"))
                .findFirst()
                .orElseThrow()
                .misses();
    }

    private static AtollException fails(ErrorCode code, ThrowingCallable call) {
        List<AtollException> thrown = new ArrayList<>();
        assertThatThrownBy(call).isInstanceOfSatisfying(AtollException.class, thrown::add);
        assertThat(thrown.getFirst().code()).isEqualTo(code);
        return thrown.getFirst();
    }

    @Test
    void limits_of_a_running_sandbox_change_on_the_node_and_on_record() throws Exception {
        Sandbox made = create(LimitChanges.NONE);
        Sandbox changed = update(made, NO_CPU_LIMIT, Map.of());
        assertThat(changed.limits().cpuMillis()).isZero();
        assertThat(changed.limits().memoryBytes()).isEqualTo(256 * MIB);
        assertThat(onNode(made)).isEqualTo(changed.limits());
        assertThat(stored(made)).isEqualTo(changed);
    }

    @Test
    void a_limit_that_the_node_refuses_stays_as_it_was() throws Exception {
        Sandbox made = create(LimitChanges.NONE);
        fixture.node.useMemory(200 * MIB);
        AtollException refused = fails(ErrorCode.CONFLICT, () -> update(made, memory(128), Map.of()));
        assertThat(refused.remediation()).contains("in use");
        assertThat(stored(made).limits()).isEqualTo(made.limits());
        assertThat(onNode(made)).isEqualTo(made.limits());
    }

    @Test
    void disk_is_fixed_once_the_sandbox_is_made() throws Exception {
        Sandbox made = create(LimitChanges.NONE);
        assertThat(fails(ErrorCode.INVALID_REQUEST, () -> update(made, disk(2048), Map.of())))
                .hasMessageContaining("disk_bytes");
    }

    @Test
    void the_operators_bounds_hold_for_new_and_for_running_sandboxes() throws Exception {
        assertThat(fails(ErrorCode.INVALID_REQUEST, () -> create(memory(2048))).remediation())
                .contains("bounds.memory_mib");
        Sandbox made = create(LimitChanges.NONE);
        AtollException refused = fails(ErrorCode.INVALID_REQUEST, () -> update(made, memory(2048), Map.of()));
        assertThat(refused.remediation()).contains("bounds.memory_mib");
    }

    @Test
    void limits_that_change_at_assignment_come_from_the_pool() throws Exception {
        fixture.full();
        Sandbox made = create(memory(512));
        assertThat(misses()).isEmpty();
        assertThat(onNode(made).memoryBytes()).isEqualTo(512 * MIB);
    }

    @Test
    void another_disk_is_a_start_from_nothing_counted_by_its_reason() throws Exception {
        fixture.full();
        Sandbox made = create(disk(2048));
        assertThat(misses()).isEqualTo(Map.of("limits", 1L));
        assertThat(onNode(made).diskBytes()).isEqualTo(2048 * MIB);
        assertThat(fixture.run(CodeExecRequest.of("print 1").in(made.id()))
                        .output()
                        .text())
                .isEqualTo("1");
    }

    @Test
    void another_number_of_processes_is_a_start_from_nothing_since_warm_kernels_keep_theirs() throws Exception {
        fixture.full();
        LimitChanges few = new LimitChanges(
                OptionalLong.empty(),
                OptionalInt.empty(),
                OptionalLong.empty(),
                OptionalInt.of(32),
                OptionalInt.empty());
        Sandbox made = create(few);
        assertThat(misses()).isEqualTo(Map.of("limits", 1L));
        assertThat(update(made, LimitChanges.NONE, Map.of()).limits().maxProcesses())
                .isEqualTo(32);
    }

    @Test
    void code_exec_makes_its_sandbox_with_limits_and_labels() throws Exception {
        CodeExecRequest request =
                CodeExecRequest.of("print 1").withLimits(NO_CPU_LIMIT).withLabels(Map.of("team", "a"));
        Sandbox made = fixture.core()
                .sandboxes()
                .get(fixture.caller(), fixture.run(request).sandboxId());
        assertThat(made.limits().cpuMillis()).isZero();
        assertThat(made.labels()).isEqualTo(Map.of("team", "a"));
        fails(ErrorCode.INVALID_REQUEST, () -> request.in(made.id()));
    }

    @Test
    void labels_are_set_and_taken_away_one_by_one() throws Exception {
        Sandbox made = create(LimitChanges.NONE, Map.of("a", "1", "b", "2"), Optional.empty());
        Sandbox changed = update(made, LimitChanges.NONE, Map.of("b", Optional.empty(), "c", Optional.of("3")));
        assertThat(changed.labels()).isEqualTo(Map.of("a", "1", "c", "3"));
        SandboxQuery query =
                new SandboxQuery(Optional.empty(), Optional.empty(), Map.of("a", "1", "c", "3"), PageRequest.FIRST);
        assertThat(fixture.core().sandboxes().list(fixture.caller(), query).items())
                .containsExactly(changed);
    }

    @Test
    void an_ended_sandbox_is_not_changed() throws Exception {
        Sandbox made = create(LimitChanges.NONE);
        fixture.node.end(made.box(), EndReason.CRASHED, "gone");
        fails(ErrorCode.SANDBOX_ENDED, () -> update(made, memory(512), Map.of()));
    }

    @Test
    void a_change_that_was_stored_but_not_done_is_done_at_the_next_start() throws Exception {
        Sandbox made = create(LimitChanges.NONE);
        fixture.store.reviseSandbox(made.revised(memory(512).applyTo(made.limits()), Map.of()));
        fixture.restart();
        Eventually.until(() -> onNode(made).memoryBytes() == 512 * MIB, () -> onNode(made));
    }

    @Test
    void the_same_key_makes_one_sandbox_and_another_request_is_a_conflict() throws Exception {
        Sandbox made = create(LimitChanges.NONE, Map.of(), Optional.of("k"));
        assertThat(create(LimitChanges.NONE, Map.of(), Optional.of("k"))).isEqualTo(made);
        fails(ErrorCode.CONFLICT, () -> create(memory(512), Map.of(), Optional.of("k")));
        fixture.restart();
        assertThat(create(LimitChanges.NONE, Map.of(), Optional.of("k")).id()).isEqualTo(made.id());
    }

    @Test
    void a_sandbox_is_told_of_with_the_times_that_the_store_can_keep() throws Exception {
        for (int i = 0; i < 3; i++) {
            fixture.clock.advance(Duration.ofNanos(1));
            Instant created = create(LimitChanges.NONE).createdAt();
            assertThat(created).isEqualTo(created.truncatedTo(ChronoUnit.MICROS));
        }
    }
}
