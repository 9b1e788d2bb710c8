package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.sandbox.Names;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Term;
import atoll.core.snapshot.SnapshotState;
import atoll.core.template.Limits;
import java.time.Duration;
import java.time.Instant;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Test;

class LifecycleTypesTest {
    @Test
    void the_table_of_legal_steps_of_a_sandbox() {
        Map<SandboxState, Set<SandboxState>> table = Map.of(
                SandboxState.CREATING, EnumSet.of(SandboxState.RUNNING, SandboxState.ENDED),
                SandboxState.RUNNING, EnumSet.of(SandboxState.PAUSING, SandboxState.RESUMING, SandboxState.ENDED),
                SandboxState.PAUSING, EnumSet.of(SandboxState.PAUSED, SandboxState.RUNNING, SandboxState.ENDED),
                SandboxState.PAUSED, EnumSet.of(SandboxState.RESUMING, SandboxState.ENDED),
                SandboxState.RESUMING, EnumSet.of(SandboxState.RUNNING, SandboxState.PAUSED, SandboxState.ENDED),
                SandboxState.ENDED, EnumSet.noneOf(SandboxState.class));
        for (SandboxState from : SandboxState.values()) {
            for (SandboxState to : SandboxState.values()) {
                assertThat(from.mayBecome(to))
                        .as(from + " to " + to)
                        .isEqualTo(table.getOrDefault(from, Set.of()).contains(to));
            }
        }
    }

    @Test
    void a_snapshot_that_is_lost_is_ready_again_once_its_file_is_back() {
        assertThat(SnapshotState.CREATING.mayBecome(SnapshotState.READY)).isTrue();
        assertThat(SnapshotState.READY.mayBecome(SnapshotState.LOST)).isTrue();
        assertThat(SnapshotState.LOST.mayBecome(SnapshotState.READY)).isTrue();
        assertThat(SnapshotState.LOST.mayBecome(SnapshotState.CREATING)).isFalse();
        assertThat(SnapshotState.READY.mayBecome(SnapshotState.CREATING)).isFalse();
    }

    @Test
    void a_step_that_is_not_legal_is_refused() {
        Sandbox running = new Sandbox(
                        SandboxId.random(),
                        ProjectId.DEFAULT,
                        "python",
                        SandboxState.CREATING,
                        Limits.DEFAULT,
                        Map.of(),
                        BoxId.random(),
                        RunId.random(),
                        Instant.EPOCH,
                        Optional.empty())
                .running();
        assertThatThrownBy(() -> running.paused(Instant.EPOCH)).hasMessageContaining("RUNNING cannot become PAUSED");
        Sandbox paused = running.pausing(SnapshotId.random()).paused(Instant.EPOCH);
        assertThatThrownBy(paused::running).hasMessageContaining("PAUSED cannot become RUNNING");
    }

    @Test
    void names_are_short_words_that_are_no_ids() {
        for (String good : List.of("a", "7", "my-box", "a".repeat(63), "sb", "sb-exe")) {
            assertThat(Names.check(good, SandboxId.PREFIX)).isEqualTo(good);
        }
        for (String bad : List.of("", "-", "a-", "-a", "A", "a b", "a_b", "a".repeat(64), "sb-exec-x", "é", "a\n")) {
            assertThatThrownBy(() -> Names.check(bad, SandboxId.PREFIX))
                    .isInstanceOfSatisfying(
                            AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST));
        }
    }

    @Test
    void a_term_is_a_second_to_ten_years() {
        assertThat(Term.of(Duration.ofSeconds(1)).length()).contains(Duration.ofSeconds(1));
        for (Duration bad : List.of(Duration.ZERO, Duration.ofSeconds(-1), Term.LONGEST.plusSeconds(1))) {
            assertThatThrownBy(() -> Term.of(bad)).isInstanceOf(AtollException.class);
        }
    }
}
