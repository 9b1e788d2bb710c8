package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.execution.OutputReader;
import atoll.core.process.OutputChoice;
import atoll.core.process.ProcessEnd;
import atoll.core.process.ProcessRecord;
import atoll.core.process.ProcessRef;
import atoll.core.process.StartProcess;
import atoll.core.sandbox.CreateMain;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.template.LimitChanges;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class MainProcessTest {
    private final CoreFixture fixture =
            new CoreFixture(Map.of("pool.depth", "1", "node.patience_seconds", "30")).ready();

    @AfterEach
    void close() {
        fixture.close();
    }

    private Sandbox create(StartProcess main, boolean endsSandbox, Optional<String> key) throws InterruptedException {
        return fixture.core()
                .sandboxes()
                .create(
                        fixture.caller(),
                        new CreateSandbox(
                                Optional.empty(),
                                Optional.empty(),
                                Map.of(),
                                Map.of(),
                                LimitChanges.NONE,
                                Optional.of(new CreateMain(main, endsSandbox)),
                                key));
    }

    private Sandbox create(String script) throws InterruptedException {
        return create(StartProcess.command(script), true, Optional.empty());
    }

    private Sandbox now(Sandbox sandbox) {
        return fixture.core().sandboxes().get(fixture.caller(), sandbox.id());
    }

    private Sandbox ended(Sandbox sandbox) {
        Eventually.until(() -> now(sandbox).state() == SandboxState.ENDED, () -> now(sandbox));
        return now(sandbox);
    }

    private ProcessRecord main(Sandbox sandbox) {
        return fixture.core()
                .processes()
                .get(
                        fixture.caller(),
                        ProcessRef.of(sandbox.main().orElseThrow().id()));
    }

    @Test
    void its_end_ends_the_sandbox_and_its_output_stays() throws Exception {
        Sandbox sandbox = create("print a\nwait gate\nexit 3");
        assertThat(main(sandbox).main()).isTrue();
        assertThat(main(sandbox).running()).isTrue();
        fixture.node.open("gate");
        Sandbox.End end = ended(sandbox).end().orElseThrow();
        assertThat(end.reason()).isEqualTo(EndReason.MAIN_EXITED);
        assertThat(end.exitCode()).isEqualTo(OptionalInt.of(3));
        assertThat(end.detail()).contains("exit code 3");
        Eventually.until(() -> fixture.node.box(sandbox.box()).isEmpty(), fixture.node::boxes);
        try (OutputReader reader = fixture.core()
                .processes()
                .read(fixture.caller(), ProcessRef.of(main(sandbox).id()), OutputChoice.STDOUT, 0, true)) {
            assertThat(StandardCharsets.UTF_8
                            .decode(reader.next().orElseThrow().data())
                            .toString())
                    .isEqualTo("a\n");
        }
        assertThat(main(sandbox).end().orElseThrow().reason()).isEqualTo(ProcessEnd.Reason.EXITED);
    }

    @Test
    void its_end_ends_the_sandbox_also_while_the_server_is_down() throws Exception {
        Sandbox sandbox = create("wait gate\nexit 4");
        fixture.core().close();
        fixture.node.open("gate");
        Eventually.until(() -> fixture.node.processes().unacknowledged() == 1, () -> "not ended");
        fixture.restart();
        Sandbox.End end = ended(sandbox).end().orElseThrow();
        assertThat(end.reason()).isEqualTo(EndReason.MAIN_EXITED);
        assertThat(end.exitCode()).isEqualTo(OptionalInt.of(4));
    }

    @Test
    void a_server_that_died_between_both_ends_finishes_the_second() throws Exception {
        Sandbox sandbox = create("wait never");
        ProcessRecord main = main(sandbox);
        fixture.core().close();
        fixture.store.saveProcessLater(
                new ProcessRecord(
                        main.id(),
                        main.project(),
                        main.sandboxId(),
                        main.argv(),
                        main.command(),
                        main.cwd(),
                        main.user(),
                        main.stdin(),
                        main.timeout(),
                        main.terminal(),
                        main.labels(),
                        true,
                        main.pid(),
                        main.createdAt(),
                        main.startedAt(),
                        main.progress(),
                        Optional.of(new ProcessEnd(
                                ProcessEnd.Reason.EXITED,
                                OptionalInt.of(7),
                                OptionalInt.empty(),
                                "",
                                Optional.empty(),
                                main.createdAt(),
                                java.time.Duration.ZERO))),
                () -> {});
        fixture.restart();
        assertThat(ended(sandbox).end().orElseThrow().exitCode()).isEqualTo(OptionalInt.of(7));
    }

    @Test
    void one_that_does_not_end_its_sandbox_leaves_it_running() throws Exception {
        Sandbox sandbox = create(StartProcess.command("exit 3"), false, Optional.empty());
        Eventually.until(() -> !main(sandbox).running(), () -> main(sandbox));
        fixture.restart();
        assertThat(now(sandbox).state()).isEqualTo(SandboxState.RUNNING);
    }

    @Test
    void one_that_cannot_start_makes_no_sandbox() throws Exception {
        assertThatThrownBy(() -> create(StartProcess.of("missing"), true, Optional.empty()))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.PROGRAM_NOT_FOUND));
        assertThat(fixture.core()
                        .sandboxes()
                        .list(fixture.caller(), SandboxQuery.ALL)
                        .items())
                .singleElement()
                .satisfies(sandbox -> {
                    assertThat(sandbox.end().orElseThrow().reason()).isEqualTo(EndReason.START_FAILED);
                    assertThat(sandbox.end().orElseThrow().detail()).contains("missing");
                });
    }

    @Test
    void a_sandbox_that_broke_down_has_not_been_ended_by_its_main_process() throws Exception {
        Sandbox sandbox = create("wait never");
        fixture.node.end(sandbox.box(), EndReason.OUT_OF_MEMORY, "peak 255 MiB");
        assertThat(ended(sandbox).end().orElseThrow().reason()).isEqualTo(EndReason.OUT_OF_MEMORY);
        Eventually.until(() -> !main(sandbox).running(), () -> main(sandbox));
        assertThat(now(sandbox).end().orElseThrow().reason()).isEqualTo(EndReason.OUT_OF_MEMORY);
    }

    @Test
    void the_same_key_gives_the_same_sandbox_with_one_main_process() throws Exception {
        Sandbox first = create(StartProcess.command("wait never"), true, Optional.of("k"));
        assertThat(create(StartProcess.command("wait never"), true, Optional.of("k"))
                        .id())
                .isEqualTo(first.id());
        assertThat(fixture.node.processes().started()).isEqualTo(1);
        assertThatThrownBy(() -> create(StartProcess.command("wait ever"), true, Optional.of("k")))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.CONFLICT));
    }
}
