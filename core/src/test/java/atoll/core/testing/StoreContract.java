package atoll.core.testing;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.ApiKey;
import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.BuildId;
import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.KeyId;
import atoll.core.Language;
import atoll.core.Page;
import atoll.core.PageRequest;
import atoll.core.ProcessId;
import atoll.core.ProjectId;
import atoll.core.RunId;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.SnapshotId;
import atoll.core.event.Event;
import atoll.core.event.EventQuery;
import atoll.core.execution.CapturedText;
import atoll.core.execution.ChangedFile;
import atoll.core.execution.ChangedFiles;
import atoll.core.execution.ExecutionError;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionOutcome.MemoryUse;
import atoll.core.execution.ExecutionQuery;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExecutionResult;
import atoll.core.execution.ExitReason;
import atoll.core.execution.MimeBundle;
import atoll.core.process.ProcessEnd;
import atoll.core.process.ProcessQuery;
import atoll.core.process.ProcessRecord;
import atoll.core.process.ProcessRecord.Progress;
import atoll.core.process.TerminalSize;
import atoll.core.sandbox.Context;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.Lifecycle;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.MainProcess;
import atoll.core.sandbox.OnTimeout;
import atoll.core.sandbox.Run;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Term;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.snapshot.SnapshotQuery;
import atoll.core.snapshot.SnapshotState;
import atoll.core.store.IdempotencyClaim;
import atoll.core.store.Store;
import atoll.core.store.StoredKey;
import atoll.core.store.StoredSession;
import atoll.core.template.Build;
import atoll.core.template.BuildContext;
import atoll.core.template.LimitChanges;
import atoll.core.template.Limits;
import atoll.core.template.Packages;
import atoll.core.template.StartCommand;
import atoll.core.template.StoredRegistry;
import atoll.core.template.StoredTemplate;
import atoll.core.template.TemplateDefinition;
import atoll.core.template.TemplateDraft;
import atoll.core.template.TemplateFile;
import atoll.core.template.TemplatePort;
import atoll.core.template.TemplateUsage;
import atoll.core.template.TemplateVersion;
import atoll.core.text.SearchText;
import atoll.core.usage.UsageQuery;
import atoll.core.usage.UsageSample;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What core relies on in every {@link Store}. */
public abstract class StoreContract {
    private static final Instant NOW = Instant.parse("2026-03-01T12:00:00.123456Z");
    private Store store = new MemoryStore();

    /** An empty store. */
    protected abstract Store open();

    @BeforeEach
    void opened() {
        store = open();
    }

    @AfterEach
    void closed() {
        store.close();
    }

    private static Sandbox sandbox(Instant createdAt, Map<String, String> labels) {
        return new Sandbox(
                SandboxId.random(),
                ProjectId.DEFAULT,
                "python",
                SandboxState.CREATING,
                Limits.DEFAULT,
                labels,
                BoxId.random(),
                RunId.random(),
                createdAt,
                Optional.empty());
    }

    private Sandbox inserted(Instant createdAt, Map<String, String> labels) {
        Sandbox sandbox = sandbox(createdAt, labels);
        store.insertSandbox(sandbox, Optional.empty());
        return sandbox;
    }

    private static ExecutionRecord running(Instant createdAt, String code) {
        return new ExecutionRecord(
                ExecutionId.random(),
                ProjectId.DEFAULT,
                SandboxId.random(),
                ContextId.random(),
                Language.PYTHON,
                code,
                code.length(),
                createdAt,
                Optional.empty());
    }

    private static ExecutionRecord ended(ExecutionRecord r, String printed) {
        ExecutionOutcome outcome = new ExecutionOutcome(
                r.id(),
                r.sandboxId(),
                r.contextId(),
                new CapturedText(printed, printed.length() + 3L, true),
                new CapturedText(printed, printed.length(), false),
                new CapturedText("err", 3, true),
                List.of(new ExecutionResult(
                        true, new MimeBundle("{\"text/plain\":\"é\\u0000\"}", Optional.of("é\0")), 7)),
                Optional.of(new ExecutionError("ValueError", "no", "Traceback\nValueError: no")),
                ExitReason.OUT_OF_MEMORY,
                OptionalInt.of(3),
                OptionalInt.of(9),
                false,
                "It needed more.",
                Optional.of(new MemoryUse(1000, 999)),
                r.createdAt().plusMillis(1),
                Duration.ofNanos(1_234_567),
                true);
        return with(r, outcome);
    }

    private static ExecutionRecord with(ExecutionRecord r, ExecutionOutcome outcome) {
        return new ExecutionRecord(
                r.id(),
                r.project(),
                r.sandboxId(),
                r.contextId(),
                r.language(),
                r.code(),
                r.codeBytes(),
                r.createdAt(),
                Optional.of(outcome));
    }

    private void save(ExecutionRecord record) {
        store.saveExecutionLater(record, () -> {});
    }

    @Test
    void results_keep_all_that_is_told_of_them_and_changed_files_too() {
        ExecutionRecord started = running(NOW, "plot");
        ExecutionOutcome o = ended(started, "").outcome().orElseThrow();
        var shown = new ExecutionResult(
                false,
                new MimeBundle("{\"image/png\":\"aGk=\"}", Optional.empty()),
                9,
                "{\"image/png\":{\"width\":3}}",
                Map.of("text/html", 9L),
                Optional.of("é"),
                false,
                false);
        for (Optional<ChangedFiles> files : List.of(
                Optional.<ChangedFiles>empty(),
                Optional.of(new ChangedFiles(List.of(), true)),
                Optional.of(
                        new ChangedFiles(List.of(new ChangedFile("/home/user/é \"x\".csv", 1L << 40, NOW)), false)))) {
            ExecutionRecord record = with(
                    running(NOW, "plot"),
                    new ExecutionOutcome(
                            o.executionId(),
                            o.sandboxId(),
                            o.contextId(),
                            o.output(),
                            o.stdout(),
                            o.stderr(),
                            List.of(shown),
                            o.error(),
                            o.exitReason(),
                            o.exitCode(),
                            o.signal(),
                            o.stateKept(),
                            o.detail(),
                            o.memory(),
                            o.startedAt(),
                            o.duration(),
                            o.truncated(),
                            files));
            save(record);
            ExecutionOutcome found =
                    store.execution(record.id()).orElseThrow().outcome().orElseThrow();
            assertThat(found.results()).containsExactly(shown);
            assertThat(found.files()).isEqualTo(files);
        }
    }

    @Test
    void a_list_gives_the_beginning_of_long_texts_and_says_so() {
        String printed = "é".repeat(ExecutionRecord.LISTED_CHARS) + "the end";
        ExecutionRecord record = ended(running(NOW, "x".repeat(10_000)), printed);
        save(record);
        ExecutionRecord listed =
                store.executions(ProjectId.DEFAULT, ExecutionQuery.ALL).items().getFirst();
        assertThat(listed).isEqualTo(record.listed());
        assertThat(listed.code()).hasSize(ExecutionRecord.LISTED_CHARS);
        assertThat(listed.codeBytes()).isEqualTo(10_000);
        ExecutionOutcome outcome = listed.outcome().orElseThrow();
        assertThat(outcome.stdout().text()).isEqualTo("é".repeat(ExecutionRecord.LISTED_CHARS));
        assertThat(outcome.stdout().truncated()).isTrue();
        assertThat(outcome.stdout().totalBytes()).isEqualTo(printed.length());
        assertThat(outcome.results()).hasSize(1);
        assertThat(store.execution(record.id())).contains(record);
    }

    @Test
    void a_list_leaves_out_large_results_and_says_so() {
        ExecutionRecord small = ended(running(NOW, "1"), "");
        ExecutionOutcome o = small.outcome().orElseThrow();
        MimeBundle large = new MimeBundle("{\"text/plain\":\"" + "x".repeat(100_000) + "\"}", Optional.empty());
        ExecutionRecord record = with(
                small,
                new ExecutionOutcome(
                        o.executionId(),
                        o.sandboxId(),
                        o.contextId(),
                        CapturedText.EMPTY,
                        CapturedText.EMPTY,
                        CapturedText.EMPTY,
                        List.of(new ExecutionResult(true, large, 0)),
                        Optional.empty(),
                        ExitReason.COMPLETED,
                        OptionalInt.empty(),
                        OptionalInt.empty(),
                        true,
                        "",
                        Optional.empty(),
                        o.startedAt(),
                        o.duration(),
                        false));
        save(record);
        ExecutionOutcome listed = store.executions(ProjectId.DEFAULT, ExecutionQuery.ALL)
                .items()
                .getFirst()
                .outcome()
                .orElseThrow();
        assertThat(listed.results()).isEmpty();
        assertThat(listed.truncated()).isTrue();
        assertThat(store.execution(record.id())).contains(record);
    }

    @Test
    void epochs_only_grow() {
        assertThat(store.nextEpoch("n", 0)).isEqualTo(1);
        assertThat(store.nextEpoch("n", 0)).isEqualTo(2);
        assertThat(store.nextEpoch("n", 9)).isEqualTo(10);
        assertThat(store.nextEpoch("n", 3)).isEqualTo(11);
        assertThat(store.nextEpoch("other", 0)).isEqualTo(1);
    }

    @Test
    void a_key_is_found_by_its_hash() {
        StoredKey key = new StoredKey(
                KeyId.random(),
                ProjectId.DEFAULT,
                "operator",
                "hash",
                "atoll_ab",
                Set.of(Scope.READ, Scope.ADMIN),
                NOW,
                Optional.of(NOW.plusSeconds(9)));
        store.insertKey(key);
        store.keyUsedLater(key.id(), NOW);
        assertThat(store.keyByHash("hash")).contains(key);
        assertThat(store.keyByHash("other")).isEmpty();
        assertThat(store.key(key.id())).contains(key);
        assertThat(store.key(KeyId.random())).isEmpty();
    }

    @Test
    void a_session_is_found_by_its_hash_until_it_is_removed() {
        StoredKey key = new StoredKey(
                KeyId.random(), ProjectId.DEFAULT, "k", "hash", "at_", Set.of(Scope.READ), NOW, Optional.empty());
        store.insertKey(key);
        var soon = new StoredSession("one", key.id(), NOW, NOW.plusSeconds(10));
        var late = new StoredSession("two", key.id(), NOW, NOW.plusSeconds(20));
        var other = new StoredSession("three", key.id(), NOW, NOW.plusSeconds(30));
        List.of(soon, late, other).forEach(store::insertSession);
        assertThat(store.sessionByHash("one")).contains(soon);
        assertThat(store.sessionByHash("four")).isEmpty();
        store.removeSessions(NOW.plusSeconds(10));
        assertThat(store.sessionByHash("one")).isEmpty();
        assertThat(store.sessionByHash("two")).contains(late);
        store.removeSession("two");
        assertThat(store.sessionByHash("two")).isEmpty();
        assertThat(store.sessionByHash("three")).contains(other);
    }

    @Test
    void a_sandbox_comes_back_as_it_was_stored() {
        Sandbox sandbox = inserted(NOW, Map.of("team", "a\"b", "x", ""));
        assertThat(store.sandbox(sandbox.id())).contains(sandbox);
        assertThat(store.sandbox(SandboxId.random())).isEmpty();
    }

    @Test
    void limits_and_labels_of_a_live_sandbox_can_change() {
        Sandbox sandbox = inserted(NOW, Map.of("team", "a", "x", "1")).running();
        store.updateSandboxLater(sandbox);
        Limits d = Limits.DEFAULT;
        Limits more = new Limits(2 * d.memoryBytes(), 0, d.diskBytes(), 99, d.maxOpenFiles());
        Sandbox revised = sandbox.revised(more, Map.of("team", "b"));
        store.reviseSandbox(revised);
        assertThat(store.sandbox(sandbox.id())).contains(revised);
        SandboxQuery old = new SandboxQuery(Optional.empty(), Optional.empty(), Map.of("x", "1"), PageRequest.FIRST);
        assertThat(store.sandboxes(ProjectId.DEFAULT, old).items()).isEmpty();
        SandboxQuery team =
                new SandboxQuery(Optional.empty(), Optional.empty(), Map.of("team", "b"), PageRequest.FIRST);
        assertThat(store.sandboxes(ProjectId.DEFAULT, team).items()).containsExactly(revised);
        Sandbox ended = revised.ended(new Sandbox.End(EndReason.DELETED, "", NOW.plusSeconds(1)));
        store.updateSandbox(ended);
        store.reviseSandbox(revised.revised(d, Map.of()));
        assertThat(store.sandbox(sandbox.id())).contains(ended);
    }

    @Test
    void a_sandbox_goes_through_its_states() {
        Sandbox sandbox = inserted(NOW, Map.of());
        assertThat(store.liveSandboxes()).containsExactly(sandbox);
        Sandbox running = sandbox.running();
        store.updateSandboxLater(running);
        assertThat(store.sandbox(sandbox.id())).contains(running);
        Sandbox ended = running.ended(new Sandbox.End(EndReason.OUT_OF_MEMORY, "peak 3", NOW.plusSeconds(1)));
        store.updateSandbox(ended);
        assertThat(store.sandbox(sandbox.id())).contains(ended);
        assertThat(store.liveSandboxes()).isEmpty();
    }

    @Test
    void a_sandbox_that_has_ended_stays_so() {
        Sandbox sandbox = inserted(NOW, Map.of());
        Sandbox ended = sandbox.ended(new Sandbox.End(EndReason.DELETED, "by key", NOW));
        store.updateSandbox(ended);
        store.updateSandboxLater(sandbox.running());
        assertThat(store.sandbox(sandbox.id())).contains(ended);
    }

    @Test
    void sandboxes_are_listed_newest_first_page_by_page() {
        List<Sandbox> all = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            // Two at the same time: the id decides, so none is lost between pages.
            all.add(inserted(NOW.plusSeconds(i / 2), Map.of()));
        }
        List<Sandbox> seen = new ArrayList<>();
        Optional<String> cursor = Optional.empty();
        do {
            Page<Sandbox> page = store.sandboxes(
                    ProjectId.DEFAULT,
                    new SandboxQuery(Optional.empty(), Optional.empty(), Map.of(), new PageRequest(2, cursor)));
            seen.addAll(page.items());
            cursor = page.next();
        } while (cursor.isPresent());
        assertThat(seen).containsExactlyInAnyOrderElementsOf(all);
        assertThat(seen).extracting(Sandbox::createdAt).isSortedAccordingTo((a, b) -> b.compareTo(a));
    }

    @Test
    void sandboxes_are_filtered() {
        Sandbox one = inserted(NOW, Map.of("team", "a", "env", "test"));
        Sandbox two = inserted(NOW, Map.of("team", "b"));
        store.updateSandbox(two.running());
        assertThat(list(Optional.of(SandboxState.RUNNING), Optional.empty(), Map.of()))
                .containsExactly(two.running());
        assertThat(list(Optional.empty(), Optional.empty(), Map.of("team", "a", "env", "test")))
                .containsExactly(one);
        assertThat(list(Optional.empty(), Optional.empty(), Map.of("team", "a", "env", "x")))
                .isEmpty();
        assertThat(list(Optional.empty(), Optional.of("bun"), Map.of())).isEmpty();
        Sandbox ended = inserted(NOW, Map.of()).ended(new Sandbox.End(EndReason.DELETED, "", NOW));
        store.updateSandbox(ended);
        SandboxQuery live = new SandboxQuery(
                Set.of(SandboxState.CREATING, SandboxState.RUNNING),
                Optional.empty(),
                Optional.empty(),
                Map.of(),
                PageRequest.FIRST);
        assertThat(store.sandboxes(ProjectId.DEFAULT, live).items()).containsExactlyInAnyOrder(one, two.running());
        assertThat(store.sandboxes(ProjectId.random(), SandboxQuery.ALL).items())
                .isEmpty();
    }

    private List<Sandbox> list(Optional<SandboxState> state, Optional<String> template, Map<String, String> labels) {
        return store.sandboxes(ProjectId.DEFAULT, new SandboxQuery(state, template, labels, PageRequest.FIRST))
                .items();
    }

    @Test
    void contexts_belong_to_their_sandbox() {
        Sandbox sandbox = sandbox(NOW, Map.of());
        Context first = new Context(ContextId.random(), ProjectId.DEFAULT, sandbox.id(), Language.PYTHON, true, NOW);
        store.insertSandbox(sandbox, Optional.of(first));
        Context second = new Context(
                ContextId.random(), ProjectId.DEFAULT, sandbox.id(), Language.BASH, false, NOW.plusSeconds(1));
        store.insertContextLater(second);
        assertThat(store.contexts(sandbox.id())).containsExactly(first, second);
        assertThat(store.contexts(SandboxId.random())).isEmpty();
    }

    @Test
    void an_execution_comes_back_with_everything_it_said() {
        ExecutionRecord running = running(NOW, "print(1)");
        save(running);
        assertThat(store.execution(running.id())).contains(running);
        assertThat(store.runningExecutions()).containsExactly(running);
        ExecutionRecord ended = ended(running, "a");
        save(ended);
        assertThat(store.execution(running.id())).contains(ended);
        store.flush();
        assertThat(store.execution(running.id())).contains(ended);
        assertThat(store.runningExecutions()).isEmpty();
    }

    @Test
    void text_with_nul_and_odd_characters_comes_back() {
        ExecutionRecord record = ended(running(NOW, "x = '\0'"), "a\0b\uE000c\uE001\uE002 😀 \r\n\t'\"\\");
        save(record);
        store.flush();
        assertThat(store.execution(record.id())).contains(record);
    }

    @Test
    void half_a_character_is_replaced() {
        ExecutionRecord record = running(NOW, "a\uD83Db\uDE00");
        save(record);
        store.flush();
        assertThat(store.execution(record.id()).orElseThrow().code()).isIn("a\uFFFDb\uFFFD", record.code());
    }

    @Test
    void executions_are_filtered_and_listed_newest_first() {
        ExecutionRecord one = running(NOW, "1");
        ExecutionRecord two = ended(running(NOW.plusSeconds(1), "2"), "x");
        save(one);
        save(two);
        assertThat(executions(Optional.empty(), Optional.empty(), Optional.empty()))
                .containsExactly(two, one);
        assertThat(executions(Optional.of(one.sandboxId()), Optional.empty(), Optional.empty()))
                .containsExactly(one);
        assertThat(executions(Optional.empty(), Optional.of(two.contextId()), Optional.empty()))
                .containsExactly(two);
        assertThat(executions(Optional.empty(), Optional.empty(), Optional.of(true)))
                .containsExactly(one);
        assertThat(executions(Optional.empty(), Optional.empty(), Optional.of(false)))
                .containsExactly(two);
        assertThat(store.executions(ProjectId.random(), ExecutionQuery.ALL).items())
                .isEmpty();
    }

    private List<ExecutionRecord> executions(
            Optional<SandboxId> sandbox, Optional<ContextId> context, Optional<Boolean> running) {
        return store.executions(ProjectId.DEFAULT, new ExecutionQuery(sandbox, context, running, PageRequest.FIRST))
                .items();
    }

    private static ExecutionRecord ran(Instant at, Language language, SandboxId sandbox, String code) {
        return new ExecutionRecord(
                ExecutionId.random(),
                ProjectId.DEFAULT,
                sandbox,
                ContextId.random(),
                language,
                code,
                code.length(),
                at,
                Optional.empty());
    }

    private List<ExecutionRecord> found(ExecutionQuery.Span span, ExecutionQuery.Wanted wanted) {
        return Page.all(page -> store.executions(
                ProjectId.DEFAULT,
                new ExecutionQuery(Optional.empty(), Optional.empty(), Optional.empty(), span, wanted, page)));
    }

    private List<ExecutionRecord> found(String text) {
        return found(
                ExecutionQuery.Span.EVER,
                new ExecutionQuery.Wanted(
                        Optional.of(new SearchText(text)), Optional.empty(), Optional.empty(), Set.of()));
    }

    @Test
    void executions_are_searched_in_code_and_output_in_any_case() {
        ExecutionRecord code = running(NOW, "print('\u00c4pfel_50%') # STRASSE");
        ExecutionRecord output = ended(running(NOW.plusSeconds(1), "x"), "It said \u00c4PFEL\0 50%");
        save(code);
        save(output);
        save(ended(running(NOW, "apfel"), "nothing of it"));
        assertThat(found("\u00e4pfel")).containsExactly(output.listed(), code);
        assertThat(found("SaId")).containsExactly(output.listed());
        assertThat(found("\u00e4pfel\0")).containsExactly(output.listed());
        assertThat(found("strasse")).containsExactly(code);
        // No wildcards.
        assertThat(found("\u00e4pfel_50%")).containsExactly(code);
        assertThat(found("pfel%50")).isEmpty();
        assertThat(found("a.fel")).isEmpty();
        // What an error says is in the output only where it was printed.
        assertThat(found("Traceback")).isEmpty();
    }

    @Test
    void what_is_searched_is_all_that_is_on_record_and_not_what_a_list_shows_of_it() {
        ExecutionRecord record = ended(running(NOW, "x".repeat(5000) + " late"), "y".repeat(9000) + " later");
        save(record);
        assertThat(found(" late")).containsExactly(record.listed());
        assertThat(found("later")).containsExactly(record.listed());
    }

    @Test
    void executions_are_filtered_by_template_language_end_and_time() {
        Sandbox sandbox = inserted(NOW, Map.of());
        ExecutionRecord python = ran(NOW, Language.PYTHON, sandbox.id(), "1");
        ExecutionRecord bash = ended(ran(NOW.plusSeconds(1), Language.BASH, SandboxId.random(), "2"), "x");
        save(python);
        save(bash);
        assertThat(wanted(Optional.of("python"), Optional.empty(), Set.of())).containsExactly(python);
        assertThat(wanted(Optional.of("other"), Optional.empty(), Set.of())).isEmpty();
        assertThat(wanted(Optional.empty(), Optional.of(Language.BASH), Set.of()))
                .containsExactly(bash.listed());
        assertThat(wanted(Optional.empty(), Optional.empty(), Set.of(ExitReason.OUT_OF_MEMORY, ExitReason.LOST)))
                .containsExactly(bash.listed());
        assertThat(wanted(Optional.empty(), Optional.of(Language.PYTHON), Set.of(ExitReason.OUT_OF_MEMORY)))
                .isEmpty();
        assertThat(during(Optional.of(NOW.plusSeconds(1)), Optional.empty())).containsExactly(bash.listed());
        assertThat(during(Optional.empty(), Optional.of(NOW.plusSeconds(1)))).containsExactly(python);
        assertThat(during(Optional.of(NOW), Optional.of(NOW.plusSeconds(2)))).containsExactly(bash.listed(), python);
    }

    private List<ExecutionRecord> wanted(
            Optional<String> template, Optional<Language> language, Set<ExitReason> reasons) {
        return found(
                ExecutionQuery.Span.EVER, new ExecutionQuery.Wanted(Optional.empty(), template, language, reasons));
    }

    private List<ExecutionRecord> during(Optional<Instant> from, Optional<Instant> until) {
        return found(new ExecutionQuery.Span(from, until), ExecutionQuery.Wanted.ANY);
    }

    @Test
    void a_search_goes_page_by_page_and_what_comes_or_goes_meanwhile_moves_nothing() {
        List<ExecutionRecord> wanted = new ArrayList<>();
        for (int i = 0; i < 450; i++) {
            // Many at the same time: the id decides.
            boolean isOne = i % 30 == 0;
            ExecutionRecord record = running(NOW.plusSeconds(i / 45), isOne ? "the needle " + i : "hay " + i);
            save(record);
            if (isOne) {
                wanted.add(record);
            }
        }
        List<ExecutionRecord> seen = new ArrayList<>();
        Optional<String> cursor = Optional.empty();
        int pages = 0;
        do {
            Page<ExecutionRecord> page = store.executions(
                    ProjectId.DEFAULT,
                    new ExecutionQuery(
                            Optional.empty(),
                            Optional.empty(),
                            Optional.empty(),
                            ExecutionQuery.Span.EVER,
                            new ExecutionQuery.Wanted(
                                    Optional.of(new SearchText("NEEDLE")),
                                    Optional.empty(),
                                    Optional.empty(),
                                    Set.of()),
                            new PageRequest(4, cursor)));
            assertThat(page.items()).hasSizeLessThanOrEqualTo(4);
            seen.addAll(page.items());
            cursor = page.next();
            save(running(NOW.plusSeconds(1000), "a newer needle"));
            pages++;
        } while (cursor.isPresent() && pages < 100);
        assertThat(seen).containsExactlyInAnyOrderElementsOf(wanted);
        assertThat(seen).extracting(ExecutionRecord::createdAt).isSortedAccordingTo((a, b) -> b.compareTo(a));
    }

    @Test
    void sandboxes_are_searched_by_id_name_template_label_and_end() {
        Sandbox plain = inserted(NOW, Map.of("Team", "Blue"));
        Sandbox ended = inserted(NOW.plusSeconds(1), Map.of())
                .ended(new Sandbox.End(EndReason.OUT_OF_MEMORY, "It needed More than 256 MB.", NOW));
        store.updateSandbox(ended);
        assertThat(sandboxesWith(plain.id().toString().substring(3, 20).toUpperCase(Locale.ROOT)))
                .containsExactly(plain);
        assertThat(sandboxesWith("team=blue")).containsExactly(plain);
        assertThat(sandboxesWith("needed more")).containsExactly(ended);
        assertThat(sandboxesWith("out_of_memory")).containsExactly(ended);
        assertThat(sandboxesWith("pyth")).containsExactly(ended, plain);
        assertThat(sandboxesWith("%")).isEmpty();
        Sandbox named = plain.named(Optional.of("the-work"));
        store.reviseSandbox(named);
        assertThat(sandboxesWith("E-wor")).containsExactly(named);
    }

    private List<Sandbox> sandboxesWith(String text) {
        return Page.all(page -> store.sandboxes(
                ProjectId.DEFAULT,
                new SandboxQuery(
                        Set.of(),
                        Optional.empty(),
                        Optional.empty(),
                        Map.of(),
                        Optional.of(new SearchText(text)),
                        page)));
    }

    @Test
    void thousands_of_executions_are_written_in_the_background() {
        AtomicInteger durable = new AtomicInteger();
        List<ExecutionRecord> records = new ArrayList<>();
        for (int i = 0; i < 3_000; i++) {
            ExecutionRecord running = running(NOW.plusMillis(i), "x");
            records.add(ended(running, "y"));
            store.saveExecutionLater(running, durable::incrementAndGet);
            store.saveExecutionLater(records.getLast(), durable::incrementAndGet);
        }
        store.flush();
        assertThat(durable).hasValue(6_000);
        assertThat(store.execution(records.get(0).id())).contains(records.get(0));
        assertThat(store.execution(records.get(2_999).id())).contains(records.get(2_999));
    }

    @Test
    void a_key_belongs_to_its_first_request() {
        IdempotencyClaim first = new IdempotencyClaim("code_exec", "k", "hash1", "exec-1");
        IdempotencyClaim second = new IdempotencyClaim("code_exec", "k", "hash2", "exec-2");
        assertThat(store.claim(ProjectId.DEFAULT, first, NOW)).isEqualTo(first);
        assertThat(store.claim(ProjectId.DEFAULT, second, NOW)).isEqualTo(first);
        assertThat(store.claim(ProjectId.DEFAULT, new IdempotencyClaim("other", "k", "h", "r"), NOW)
                        .resultId())
                .isEqualTo("r");
    }

    @Test
    void keys_are_listed_newest_first_with_their_last_use_until_they_are_removed() {
        StoredKey old = new StoredKey(
                KeyId.random(), ProjectId.DEFAULT, "old", "h1", "at_", Set.of(Scope.READ), NOW, Optional.empty());
        StoredKey young = new StoredKey(
                KeyId.random(),
                ProjectId.DEFAULT,
                "young",
                "h2",
                "at_2",
                Set.of(Scope.READ, Scope.ADMIN),
                NOW.plusSeconds(1),
                Optional.of(NOW.plusSeconds(9)));
        store.insertKey(old);
        store.insertKey(young);
        store.keyUsedLater(old.id(), NOW.plusSeconds(5));
        assertThat(store.keys(ProjectId.DEFAULT))
                .containsExactly(
                        new ApiKey(
                                young.id(),
                                ProjectId.DEFAULT,
                                "young",
                                "at_2",
                                Set.of(Scope.READ, Scope.ADMIN),
                                NOW.plusSeconds(1),
                                Optional.of(NOW.plusSeconds(9)),
                                Optional.empty()),
                        new ApiKey(
                                old.id(),
                                ProjectId.DEFAULT,
                                "old",
                                "at_",
                                Set.of(Scope.READ),
                                NOW,
                                Optional.empty(),
                                Optional.of(NOW.plusSeconds(5))));
        store.removeKey(ProjectId.random(), old.id());
        assertThat(store.keyByHash("h1")).isPresent();
        store.removeKey(ProjectId.DEFAULT, old.id());
        assertThat(store.keyByHash("h1")).isEmpty();
        assertThat(store.keys(ProjectId.DEFAULT)).extracting(ApiKey::id).containsExactly(young.id());
        assertThat(store.keys(ProjectId.random())).isEmpty();
    }

    @Test
    void ended_sandboxes_are_counted() {
        Sandbox ended = inserted(NOW, Map.of());
        Sandbox live = inserted(NOW, Map.of());
        assertThat(store.endedSandboxes(ProjectId.DEFAULT)).isZero();
        store.updateSandbox(ended.ended(new Sandbox.End(EndReason.DELETED, "", NOW)));
        assertThat(store.endedSandboxes(ProjectId.DEFAULT)).isEqualTo(1);
        assertThat(store.endedSandboxes(ProjectId.random())).isZero();
        assertThat(store.sandbox(live.id())).contains(live);
    }

    @Test
    void executions_are_counted_over_all_templates_also_those_that_are_gone() {
        assertThat(store.executionTotals().getOrDefault(ProjectId.DEFAULT, 0L)).isZero();
        store.addTemplateUsageLater(ProjectId.DEFAULT, "one", 3, NOW);
        store.addTemplateUsageLater(ProjectId.DEFAULT, "two", 4, NOW);
        store.addTemplateUsageLater(ProjectId.DEFAULT, "two", 0, NOW);
        store.removeTemplate(ProjectId.DEFAULT, "one", false);
        assertThat(store.executionTotals()).containsExactly(Map.entry(ProjectId.DEFAULT, 7L));
    }

    private static EventQuery eventsOf(EventQuery.Order order, int limit, Optional<String> cursor, String... kinds) {
        return new EventQuery(Optional.empty(), Set.of(kinds), order, new PageRequest(limit, cursor));
    }

    private void happened(String kind, String subject) {
        store.appendEventLater(new Event(0, ProjectId.DEFAULT, NOW, kind, subject, "why"));
    }

    @Test
    void events_are_read_in_both_orders_page_by_page() {
        for (int i = 0; i < 3; i++) {
            happened("sandbox.started", "sb" + i);
        }
        Page<Event> first =
                store.events(ProjectId.DEFAULT, eventsOf(EventQuery.Order.OLDEST_FIRST, 2, Optional.empty()));
        assertThat(first.items()).extracting(Event::subject).containsExactly("sb0", "sb1");
        assertThat(first.items().getFirst().detail()).isEqualTo("why");
        assertThat(first.items().getFirst().at()).isEqualTo(NOW);
        Page<Event> second = store.events(ProjectId.DEFAULT, eventsOf(EventQuery.Order.OLDEST_FIRST, 2, first.next()));
        assertThat(second.items()).extracting(Event::subject).containsExactly("sb2");
        assertThat(second.next()).isEmpty();
        Page<Event> newest =
                store.events(ProjectId.DEFAULT, eventsOf(EventQuery.Order.NEWEST_FIRST, 2, Optional.empty()));
        assertThat(newest.items()).extracting(Event::subject).containsExactly("sb2", "sb1");
        Page<Event> older = store.events(ProjectId.DEFAULT, eventsOf(EventQuery.Order.NEWEST_FIRST, 2, newest.next()));
        assertThat(older.items()).extracting(Event::subject).containsExactly("sb0");
        assertThat(older.next()).isEmpty();
        assertThat(store.events(ProjectId.random(), EventQuery.ALL).items()).isEmpty();
    }

    @Test
    void events_are_found_by_subject_and_kind() {
        happened("sandbox.started", "sb1");
        happened("sandbox.started", "sb2");
        happened("sandbox.paused", "sb1");
        happened("sandbox.ended", "sb1");
        assertThat(store.events(ProjectId.DEFAULT, EventQuery.ALL.of("sb1")).items())
                .extracting(Event::kind)
                .containsExactly("sandbox.ended", "sandbox.paused", "sandbox.started");
        EventQuery two =
                eventsOf(EventQuery.Order.OLDEST_FIRST, 1, Optional.empty(), "sandbox.ended", "sandbox.started");
        Page<Event> page = store.events(ProjectId.DEFAULT, two.of("sb1"));
        assertThat(page.items()).extracting(Event::kind).containsExactly("sandbox.started");
        EventQuery rest = eventsOf(EventQuery.Order.OLDEST_FIRST, 9, page.next(), "sandbox.ended", "sandbox.started");
        assertThat(store.events(ProjectId.DEFAULT, rest.of("sb1")).items())
                .extracting(Event::kind)
                .containsExactly("sandbox.ended");
    }

    @Test
    void retention_removes_ended_executions_by_age() {
        ExecutionRecord old = ended(running(NOW.minusSeconds(100), "1"), "x");
        ExecutionRecord stillRunning = running(NOW.minusSeconds(100), "2");
        ExecutionRecord young = ended(running(NOW, "3"), "x");
        List.of(old, stillRunning, young).forEach(this::save);
        store.flush();
        assertThat(store.removeExecutions(NOW.minusSeconds(50), 1000, 10)).containsExactly(old.id());
        assertThat(store.execution(old.id())).isEmpty();
        assertThat(store.execution(stillRunning.id())).isPresent();
        assertThat(store.execution(young.id())).isPresent();
    }

    @Test
    void retention_keeps_no_more_than_so_many_executions() {
        List<ExecutionRecord> records = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            records.add(ended(running(NOW.plusSeconds(i), "x"), "y"));
        }
        records.forEach(this::save);
        store.flush();
        assertThat(store.removeExecutions(NOW.minusSeconds(50), 4, 10))
                .containsExactlyInAnyOrder(records.get(0).id(), records.get(1).id());
        assertThat(store.removeExecutions(NOW.minusSeconds(50), 4, 10)).isEmpty();
    }

    @Test
    void retention_removes_what_ended_long_ago() {
        Sandbox old = inserted(NOW.minusSeconds(100), Map.of("a", "b"));
        store.updateSandbox(old.ended(new Sandbox.End(EndReason.DELETED, "", NOW.minusSeconds(90))));
        store.insertContextLater(
                new Context(ContextId.random(), ProjectId.DEFAULT, old.id(), Language.BASH, true, NOW));
        Sandbox live = inserted(NOW.minusSeconds(100), Map.of());
        store.appendEventLater(new Event(0, ProjectId.DEFAULT, NOW.minusSeconds(90), "k", "s", ""));
        store.flush();
        assertThat(store.removeEnded(NOW.minusSeconds(50), 10)).isEqualTo(1);
        assertThat(store.sandbox(old.id())).isEmpty();
        assertThat(store.contexts(old.id())).isEmpty();
        assertThat(store.sandbox(live.id())).contains(live);
        assertThat(store.events(ProjectId.DEFAULT, EventQuery.ALL).items()).isEmpty();
    }

    private static ProcessRecord process(SandboxId sandbox, Instant createdAt, Map<String, String> labels) {
        return new ProcessRecord(
                ProcessId.random(),
                ProjectId.DEFAULT,
                sandbox,
                List.of("/bin/bash", "-c", "echo \"é\"\n", ""),
                Optional.of("echo \"é\"\n"),
                "/srv",
                "root",
                true,
                Optional.of(Duration.ofMillis(1500)),
                Optional.of(new TerminalSize(120, 40)),
                labels,
                true,
                0,
                createdAt,
                Optional.empty(),
                Progress.NONE,
                Optional.empty());
    }

    private static ProcessRecord ended(ProcessRecord p) {
        return new ProcessRecord(
                p.id(),
                p.project(),
                p.sandboxId(),
                p.argv(),
                p.command(),
                p.cwd(),
                p.user(),
                p.stdin(),
                p.timeout(),
                p.terminal(),
                p.labels(),
                p.main(),
                4711,
                p.createdAt(),
                Optional.of(p.createdAt().plusMillis(2)),
                new Progress(5_000_000_000L, 2, 3, true),
                Optional.of(new ProcessEnd(
                        ProcessEnd.Reason.OUT_OF_MEMORY,
                        OptionalInt.of(137),
                        OptionalInt.of(9),
                        "It needed more.\0",
                        Optional.of(new MemoryUse(1000, 999)),
                        p.createdAt().plusMillis(9),
                        Duration.ofNanos(7_000_001))));
    }

    private static ProcessRecord plain(Instant createdAt) {
        return new ProcessRecord(
                ProcessId.random(),
                ProjectId.DEFAULT,
                SandboxId.random(),
                List.of("true"),
                Optional.empty(),
                "",
                "",
                false,
                Optional.empty(),
                Optional.empty(),
                Map.of(),
                false,
                7,
                createdAt,
                Optional.of(createdAt),
                Progress.NONE,
                Optional.empty());
    }

    private void save(ProcessRecord record) {
        store.saveProcessLater(record, () -> {});
    }

    private List<ProcessRecord> processes(ProcessQuery query) {
        return store.processes(ProjectId.DEFAULT, query).items();
    }

    @Test
    void a_process_comes_back_as_it_was_stored() {
        ProcessRecord started = process(SandboxId.random(), NOW, Map.of("role", "test", "n", ""));
        AtomicInteger durable = new AtomicInteger();
        store.saveProcessLater(started, durable::incrementAndGet);
        assertThat(store.process(started.id())).contains(started);
        assertThat(store.runningProcesses()).containsExactly(started);
        store.flush();
        assertThat(store.process(started.id())).contains(started);
        ProcessRecord ended = ended(started);
        store.saveProcessLater(ended, durable::incrementAndGet);
        assertThat(store.process(started.id())).contains(ended);
        store.flush();
        assertThat(durable).hasValue(2);
        assertThat(store.process(started.id())).contains(ended);
        assertThat(store.runningProcesses()).isEmpty();
        ProcessRecord plain = plain(NOW);
        save(plain);
        store.flush();
        assertThat(store.process(plain.id())).contains(plain);
    }

    @Test
    void a_process_that_never_came_to_be_is_not_there() {
        ProcessRecord refused = process(SandboxId.random(), NOW, Map.of("a", "b"));
        save(refused);
        store.removeProcessLater(refused.id());
        assertThat(store.process(refused.id())).isEmpty();
        store.flush();
        assertThat(store.process(refused.id())).isEmpty();
        save(refused);
        store.flush();
        store.removeProcessLater(refused.id());
        store.flush();
        assertThat(store.process(refused.id())).isEmpty();
        assertThat(processes(ProcessQuery.ALL)).isEmpty();
    }

    @Test
    void processes_are_filtered_and_listed_newest_first_page_by_page() {
        SandboxId sandbox = SandboxId.random();
        ProcessRecord one = process(sandbox, NOW, Map.of("role", "a"));
        ProcessRecord two = ended(process(sandbox, NOW.plusSeconds(1), Map.of("role", "b", "x", "y")));
        ProcessRecord other = plain(NOW.plusSeconds(2));
        List.of(one, two, other).forEach(this::save);
        assertThat(processes(ProcessQuery.ALL)).containsExactly(other, two, one);
        assertThat(processes(ProcessQuery.in(sandbox))).containsExactly(two, one);
        assertThat(processes(new ProcessQuery(Optional.of(sandbox), Optional.of(true), Map.of(), PageRequest.FIRST)))
                .containsExactly(one);
        assertThat(processes(new ProcessQuery(
                        Optional.empty(), Optional.empty(), Map.of("role", "b", "x", "y"), PageRequest.FIRST)))
                .containsExactly(two);
        assertThat(store.processes(ProjectId.random(), ProcessQuery.ALL).items())
                .isEmpty();
        Page<ProcessRecord> first = store.processes(
                ProjectId.DEFAULT,
                new ProcessQuery(Optional.empty(), Optional.empty(), Map.of(), new PageRequest(2, Optional.empty())));
        assertThat(first.items()).containsExactly(other, two);
        assertThat(processes(new ProcessQuery(
                        Optional.empty(), Optional.empty(), Map.of(), new PageRequest(2, first.next()))))
                .containsExactly(one);
    }

    @Test
    void retention_removes_ended_processes_by_age_and_number() {
        ProcessRecord old = ended(process(SandboxId.random(), NOW.minusSeconds(100), Map.of("a", "b")));
        ProcessRecord running = plain(NOW.minusSeconds(100));
        save(old);
        save(running);
        store.flush();
        assertThat(store.removeProcesses(NOW.minusSeconds(50), 1000, 10)).containsExactly(old.id());
        assertThat(store.process(old.id())).isEmpty();
        List<ProcessRecord> young = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            young.add(ended(process(SandboxId.random(), NOW.plusSeconds(i), Map.of())));
        }
        young.forEach(this::save);
        store.flush();
        assertThat(store.removeProcesses(NOW.minusSeconds(50), 3, 10))
                .containsExactlyInAnyOrder(young.get(0).id(), young.get(1).id());
        assertThat(store.process(running.id())).contains(running);
    }

    @Test
    void a_sandbox_keeps_its_main_process_and_the_code_it_ended_with() {
        Sandbox plain = sandbox(NOW, Map.of());
        Sandbox sandbox = new Sandbox(
                plain.id(),
                plain.project(),
                plain.template(),
                3,
                plain.state(),
                plain.limits(),
                plain.labels(),
                plain.box(),
                plain.run(),
                Optional.of(new MainProcess(ProcessId.random(), true)),
                plain.name(),
                plain.env(),
                plain.lifecycle(),
                plain.times(),
                plain.pausedIn(),
                plain.origin(),
                plain.createdAt(),
                Optional.empty());
        store.insertSandbox(sandbox, Optional.empty());
        assertThat(store.sandbox(sandbox.id())).contains(sandbox);
        Sandbox ended = sandbox.ended(
                new Sandbox.End(EndReason.MAIN_EXITED, "exit code 3", NOW.plusSeconds(1), OptionalInt.of(3)));
        store.updateSandbox(ended);
        assertThat(store.sandbox(sandbox.id())).contains(ended);
    }

    @Test
    void a_context_keeps_its_folder_and_environment_until_it_is_closed() {
        Sandbox sandbox = inserted(NOW, Map.of());
        Context context = new Context(
                ContextId.random(),
                ProjectId.DEFAULT,
                sandbox.id(),
                Language.BASH,
                false,
                "/srv",
                Map.of("A", "b\"c"),
                NOW);
        store.insertContextLater(context);
        assertThat(store.contexts(sandbox.id())).containsExactly(context);
        store.closeContextLater(context.id(), NOW);
        assertThat(store.contexts(sandbox.id())).isEmpty();
    }

    @Test
    void samples_are_read_the_oldest_first_and_removed_by_age() {
        SandboxId sandbox = SandboxId.random();
        List<UsageSample> all = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            all.add(new UsageSample(
                    sandbox,
                    NOW.plusSeconds(i),
                    i == 0 ? OptionalDouble.empty() : OptionalDouble.of(12.25 * i),
                    Duration.ofMillis(1000 + i),
                    Duration.ofNanos(3000),
                    1L << 33,
                    2,
                    3,
                    4,
                    5,
                    6));
        }
        store.saveUsageLater(all.subList(3, 5));
        store.saveUsageLater(all.subList(0, 3));
        assertThat(store.usage(sandbox, UsageQuery.ALL).items()).isEqualTo(all);
        assertThat(store.usage(SandboxId.random(), UsageQuery.ALL).items()).isEmpty();
        UsageQuery middle =
                new UsageQuery(Optional.of(NOW.plusSeconds(1)), Optional.of(NOW.plusSeconds(3)), PageRequest.FIRST);
        assertThat(store.usage(sandbox, middle).items()).isEqualTo(all.subList(1, 4));
        Page<UsageSample> first = store.usage(
                sandbox, new UsageQuery(Optional.empty(), Optional.empty(), new PageRequest(3, Optional.empty())));
        assertThat(first.items()).isEqualTo(all.subList(0, 3));
        Page<UsageSample> second = store.usage(
                sandbox, new UsageQuery(Optional.empty(), Optional.empty(), new PageRequest(3, first.next())));
        assertThat(second.items()).isEqualTo(all.subList(3, 5));
        assertThat(second.next()).isEmpty();
        assertThat(store.removeUsage(NOW.plusSeconds(2))).isEqualTo(2);
        assertThat(store.usage(sandbox, UsageQuery.ALL).items()).isEqualTo(all.subList(2, 5));
    }

    private static Sandbox full(String name) {
        return new Sandbox(
                SandboxId.random(),
                ProjectId.DEFAULT,
                "python",
                2,
                SandboxState.CREATING,
                Limits.DEFAULT,
                Map.of("a", "b"),
                BoxId.random(),
                RunId.random(),
                Optional.empty(),
                Optional.of(name),
                Map.of("KEY", "a \"value\"\n"),
                new Lifecycle(
                        Optional.of(Duration.ofSeconds(90)), Optional.of(Duration.ofHours(2)), OnTimeout.KILL, false),
                new Sandbox.Times(Optional.of(NOW.plusSeconds(90)), Optional.empty(), NOW),
                Optional.empty(),
                Optional.of(new Sandbox.Origin(Optional.of(SandboxId.random()), Optional.of(SnapshotId.random()))),
                NOW,
                Optional.empty());
    }

    @Test
    void a_sandbox_keeps_its_name_environment_agreement_and_origin() {
        Sandbox sandbox = full("mine");
        store.insertSandbox(sandbox, Run.first(sandbox, Run.How.FORK), List.of());
        assertThat(store.sandbox(sandbox.id())).contains(sandbox);
        Sandbox changed = sandbox.named(Optional.of("other"))
                .agreed(Lifecycle.UNBOUND, Optional.empty())
                .revised(Limits.DEFAULT, Map.of("c", "d"));
        store.reviseSandbox(changed);
        assertThat(store.sandbox(sandbox.id())).contains(changed);
        Sandbox unnamed = changed.named(Optional.empty());
        store.reviseSandbox(unnamed);
        assertThat(store.sandbox(sandbox.id())).contains(unnamed);
    }

    @Test
    void a_sandbox_is_stored_in_every_state_of_its_life() {
        Sandbox creating = full("mine");
        Run first = Run.first(creating, Run.How.START);
        store.insertSandbox(creating, first, List.of());
        SnapshotId snapshot = SnapshotId.random();
        Sandbox pausing = creating.running().active(NOW.plusSeconds(5)).pausing(snapshot);
        store.updateSandbox(pausing);
        assertThat(store.sandbox(creating.id())).contains(pausing);
        Sandbox paused = pausing.paused(NOW.plusSeconds(6));
        Run over = first.ended(new Run.End(Run.PAUSED, "", NOW.plusSeconds(6), Optional.of(snapshot)));
        store.updateSandbox(paused, List.of(over));
        assertThat(store.sandbox(creating.id())).contains(paused);
        assertThat(store.runs(creating.id())).containsExactly(over);
        assertThat(store.liveSandboxes()).containsExactly(paused);
        Sandbox resuming = paused.resuming();
        store.updateSandbox(resuming);
        assertThat(store.sandbox(creating.id())).contains(resuming);
        Sandbox resumed = resuming.resumed(RunId.random(), NOW.plusSeconds(10));
        Run second = new Run(
                resumed.run(),
                ProjectId.DEFAULT,
                creating.id(),
                Run.How.RESUME,
                Optional.of(snapshot),
                NOW.plusSeconds(10),
                Optional.empty());
        store.updateSandbox(resumed, List.of(second));
        assertThat(store.sandbox(creating.id())).contains(resumed);
        assertThat(store.runs(creating.id())).containsExactly(over, second);
        Sandbox ended = resumed.ended(new Sandbox.End(EndReason.EXPIRED, "its time was up", NOW.plusSeconds(20)));
        store.updateSandbox(ended);
        assertThat(store.sandbox(creating.id())).contains(ended);
        assertThat(store.runs(creating.id()))
                .containsExactly(
                        over,
                        second.ended(new Run.End("expired", "its time was up", NOW.plusSeconds(20), Optional.empty())));
    }

    @Test
    void the_end_of_a_paused_sandbox_does_not_change_how_its_run_ended() {
        Sandbox creating = full("mine");
        Run first = Run.first(creating, Run.How.START);
        store.insertSandbox(creating, first, List.of());
        Sandbox paused = creating.running().pausing(SnapshotId.random()).paused(NOW.plusSeconds(1));
        Run over = first.ended(new Run.End(Run.PAUSED, "", NOW.plusSeconds(1), paused.pausedIn()));
        store.updateSandbox(paused, List.of(over));
        store.updateSandbox(paused.ended(new Sandbox.End(EndReason.DELETED, "", NOW.plusSeconds(2))));
        assertThat(store.runs(creating.id())).containsExactly(over);
    }

    @Test
    void what_comes_after_the_end_of_a_sandbox_changes_nothing() {
        Sandbox creating = full("mine");
        Run first = Run.first(creating, Run.How.START);
        store.insertSandbox(creating, first, List.of());
        Sandbox running = creating.running();
        Sandbox ended = running.ended(new Sandbox.End(EndReason.DELETED, "", NOW.plusSeconds(2)));
        store.updateSandbox(ended);
        Sandbox late = running.pausing(SnapshotId.random()).paused(NOW);
        Run another = new Run(
                RunId.random(),
                ProjectId.DEFAULT,
                creating.id(),
                Run.How.RESUME,
                Optional.empty(),
                NOW,
                Optional.empty());
        store.updateSandbox(late, List.of(another));
        store.updateSandboxLater(late);
        store.flush();
        assertThat(store.sandbox(creating.id())).contains(ended);
        assertThat(store.runs(creating.id())).hasSize(1);
    }

    @Test
    void a_name_is_one_live_sandbox_s_and_free_again_after_its_end() {
        Sandbox one = full("mine");
        store.insertSandbox(one, Optional.empty());
        Sandbox two = full("mine");
        assertThatThrownBy(() -> store.insertSandbox(two, Optional.empty())).isInstanceOf(AtollException.class);
        assertThat(store.sandbox(two.id())).isEmpty();
        store.updateSandbox(one.ended(new Sandbox.End(EndReason.DELETED, "", NOW)));
        store.insertSandbox(two, Optional.empty());
        SandboxQuery named =
                new SandboxQuery(Optional.empty(), Optional.empty(), Optional.of("mine"), Map.of(), PageRequest.FIRST);
        assertThat(store.sandboxes(ProjectId.DEFAULT, named).items())
                .extracting(Sandbox::id)
                .containsExactlyInAnyOrder(one.id(), two.id());
        SandboxQuery none =
                new SandboxQuery(Optional.empty(), Optional.empty(), Optional.of("other"), Map.of(), PageRequest.FIRST);
        assertThat(store.sandboxes(ProjectId.DEFAULT, none).items()).isEmpty();
    }

    @Test
    void contexts_that_are_copies_know_of_what() {
        Sandbox sandbox = full("mine");
        List<Context> copies = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            copies.add(new Context(
                    ContextId.random(),
                    ProjectId.DEFAULT,
                    sandbox.id(),
                    Language.PYTHON,
                    i == 0,
                    "/srv",
                    Map.of(),
                    Optional.of(ContextId.random()),
                    NOW.plusSeconds(i)));
        }
        store.insertSandbox(sandbox, Run.first(sandbox, Run.How.SNAPSHOT), copies);
        assertThat(store.contexts(sandbox.id())).isEqualTo(copies);
        assertThat(store.runs(sandbox.id()))
                .containsExactly(new Run(
                        sandbox.run(),
                        ProjectId.DEFAULT,
                        sandbox.id(),
                        Run.How.SNAPSHOT,
                        sandbox.origin().orElseThrow().snapshot(),
                        NOW,
                        Optional.empty()));
    }

    private static Snapshot snapshot(Optional<String> name, Instant createdAt, Map<String, String> labels) {
        return new Snapshot(
                SnapshotId.random(),
                ProjectId.DEFAULT,
                name,
                SnapshotKind.MEMORY,
                Optional.of(SandboxId.random()),
                "python",
                4,
                Optional.of(SnapshotId.random()),
                Limits.DEFAULT,
                Map.of("KEY", "\"é\""),
                List.of(
                        new Snapshot.Held(ContextId.random(), Language.PYTHON, true, "", Map.of()),
                        new Snapshot.Held(ContextId.random(), Language.BASH, false, "/srv", Map.of("A", "b\"c"))),
                labels,
                SnapshotState.CREATING,
                0,
                Duration.ZERO,
                createdAt,
                Optional.of(createdAt.plusSeconds(60)),
                "");
    }

    private static SnapshotQuery snapshots(Optional<SandboxId> of, Optional<String> name, Map<String, String> labels) {
        return new SnapshotQuery(of, Optional.empty(), name, labels, PageRequest.FIRST);
    }

    @Test
    void a_snapshot_comes_back_as_it_was_stored() {
        Snapshot creating = snapshot(Optional.of("base"), NOW, Map.of("a", "b", "n", ""));
        store.insertSnapshot(creating);
        assertThat(store.snapshot(creating.id())).contains(creating);
        assertThat(store.liveSnapshots()).containsExactly(creating);
        Snapshot ready = creating.ready(5_000_000_000L, Duration.ofNanos(15_250_000));
        store.updateSnapshot(ready);
        assertThat(store.snapshot(creating.id())).contains(ready);
        Snapshot revised = ready.revised(Optional.of("other"), Map.of("c", "d"), Optional.empty());
        store.updateSnapshot(revised);
        assertThat(store.snapshot(creating.id())).contains(revised);
        assertThat(store.snapshotByName(ProjectId.DEFAULT, "other")).contains(revised);
        assertThat(store.snapshotByName(ProjectId.DEFAULT, "base")).isEmpty();
        assertThat(store.snapshotByName(ProjectId.random(), "other")).isEmpty();
        Snapshot lost = revised.lost("it was not on the node any more");
        store.updateSnapshot(lost);
        assertThat(store.snapshot(creating.id())).contains(lost);
        assertThat(store.liveSnapshots()).isEmpty();
        assertThat(store.snapshotByName(ProjectId.DEFAULT, "other")).isEmpty();
        store.removeSnapshot(creating.id());
        assertThat(store.snapshot(creating.id())).isEmpty();
        store.updateSnapshot(lost);
        assertThat(store.snapshot(creating.id())).isEmpty();
    }

    @Test
    void a_name_is_one_snapshot_s_and_free_again_when_it_is_lost_or_removed() {
        Snapshot one = snapshot(Optional.of("base"), NOW, Map.of());
        store.insertSnapshot(one);
        Snapshot two = snapshot(Optional.of("base"), NOW, Map.of());
        assertThatThrownBy(() -> store.insertSnapshot(two)).isInstanceOf(AtollException.class);
        store.updateSnapshot(one.lost("gone"));
        store.insertSnapshot(two);
        assertThat(store.snapshotByName(ProjectId.DEFAULT, "base")).contains(two);
        store.removeSnapshot(two.id());
        store.insertSnapshot(snapshot(Optional.of("base"), NOW, Map.of()));
    }

    @Test
    void snapshots_are_filtered_and_listed_newest_first_page_by_page() {
        Snapshot one = snapshot(Optional.of("one"), NOW, Map.of("role", "a"));
        Snapshot two = snapshot(Optional.empty(), NOW.plusSeconds(1), Map.of("role", "b", "x", "y"));
        Snapshot three = snapshot(Optional.empty(), NOW.plusSeconds(2), Map.of());
        List.of(one, two, three).forEach(store::insertSnapshot);
        assertThat(store.snapshots(ProjectId.DEFAULT, SnapshotQuery.ALL).items())
                .containsExactly(three, two, one);
        assertThat(store.snapshots(ProjectId.random(), SnapshotQuery.ALL).items())
                .isEmpty();
        assertThat(store.snapshots(ProjectId.DEFAULT, snapshots(two.sandbox(), Optional.empty(), Map.of()))
                        .items())
                .containsExactly(two);
        assertThat(store.snapshots(ProjectId.DEFAULT, snapshots(Optional.empty(), Optional.of("one"), Map.of()))
                        .items())
                .containsExactly(one);
        assertThat(store.snapshots(
                                ProjectId.DEFAULT,
                                snapshots(Optional.empty(), Optional.empty(), Map.of("role", "b", "x", "y")))
                        .items())
                .containsExactly(two);
        SnapshotQuery files = new SnapshotQuery(
                Optional.empty(), Optional.of(SnapshotKind.FILES), Optional.empty(), Map.of(), PageRequest.FIRST);
        assertThat(store.snapshots(ProjectId.DEFAULT, files).items()).isEmpty();
        Page<Snapshot> first = store.snapshots(
                ProjectId.DEFAULT,
                new SnapshotQuery(
                        Optional.empty(),
                        Optional.of(SnapshotKind.MEMORY),
                        Optional.empty(),
                        Map.of(),
                        new PageRequest(2, Optional.empty())));
        assertThat(first.items()).containsExactly(three, two);
        assertThat(store.snapshots(
                                ProjectId.DEFAULT,
                                new SnapshotQuery(
                                        Optional.empty(),
                                        Optional.empty(),
                                        Optional.empty(),
                                        Map.of(),
                                        new PageRequest(2, first.next())))
                        .items())
                .containsExactly(one);
    }

    @Test
    void retention_removes_lost_snapshots_and_the_runs_of_ended_sandboxes() {
        Snapshot lost = snapshot(Optional.empty(), NOW.minusSeconds(100), Map.of("a", "b"));
        Snapshot kept = snapshot(Optional.empty(), NOW.minusSeconds(100), Map.of());
        store.insertSnapshot(lost);
        store.insertSnapshot(kept);
        store.updateSnapshot(lost.lost("gone"));
        Sandbox old = inserted(NOW.minusSeconds(100), Map.of());
        store.updateSandbox(old.ended(new Sandbox.End(EndReason.DELETED, "", NOW.minusSeconds(90))));
        assertThat(store.runs(old.id())).hasSize(1);
        store.removeEnded(NOW.minusSeconds(50), 10);
        assertThat(store.snapshot(lost.id())).isEmpty();
        assertThat(store.snapshot(kept.id())).contains(kept);
        assertThat(store.runs(old.id())).isEmpty();
    }

    private static TemplateDefinition definition(String name) {
        return new TemplateDraft()
                .name(name)
                .description("For tests: \"é\"\n")
                .image("python:3.12-slim")
                .packages(new Packages(List.of("curl"), List.of("six"), List.of("zod"), List.of("golang.org/x/text")))
                .files(List.of(new TemplateFile("/a b", "aGVsbG8=", 0600, "user")))
                .commands(List.of("echo 1", "echo 2"))
                .env(Map.of("A", "1", "B", "2"))
                .user("user")
                .workdir("/srv")
                .start(Optional.of(new StartCommand(
                        "serve",
                        new StartCommand.Ready(new StartCommand.Check.Http(80, "/health"), Duration.ofSeconds(9)))))
                .defaultLanguage(Optional.of(Language.GO))
                .limits(new LimitChanges(
                        OptionalLong.of(1L << 30),
                        OptionalInt.of(250),
                        OptionalLong.of(2L << 30),
                        OptionalInt.of(99),
                        OptionalInt.of(999)))
                .timeout(Optional.of(Duration.ofMillis(1500)))
                .lifecycle(new LifecycleChanges(
                        Optional.of(Term.of(Duration.ofSeconds(60))),
                        Optional.of(Term.NONE),
                        Optional.of(OnTimeout.KILL),
                        Optional.of(false)))
                .maxLifetime(Optional.of(Duration.ofHours(1)))
                .poolDepth(OptionalInt.of(0))
                .poolMaxDepth(OptionalInt.of(3))
                .ports(List.of(new TemplatePort(80, "web")))
                .runtime("docker")
                .labels(Map.of("team", "x"))
                .definition();
    }

    private static StoredTemplate template(String id, int current, int newest) {
        return new StoredTemplate(ProjectId.DEFAULT, id, current, newest, NOW, NOW.plusSeconds(1), Optional.empty());
    }

    private static TemplateVersion version(String id, int number, TemplateDefinition definition) {
        return new TemplateVersion(ProjectId.DEFAULT, id, number, definition, NOW.plusSeconds(number));
    }

    @Test
    void a_template_comes_back_with_all_its_versions() {
        TemplateDefinition full = definition("Mine");
        TemplateDefinition plain = new TemplateDraft()
                .dockerfile("FROM scratch\n")
                .context(Optional.of(new BuildContext("a".repeat(64), 7)))
                .definition();
        store.saveTemplate(template("mine", 1, 1), Optional.of(version("mine", 1, full)));
        store.saveTemplate(template("mine", 1, 2), Optional.of(version("mine", 2, plain)));
        store.saveTemplate(template("mine", 2, 2), Optional.empty());
        assertThat(store.templates()).containsExactly(template("mine", 2, 2));
        assertThat(store.templateVersions()).containsExactly(version("mine", 1, full), version("mine", 2, plain));
        assertThat(store.templateVersion(ProjectId.DEFAULT, "mine", 1)).contains(version("mine", 1, full));
        assertThat(store.templateVersion(ProjectId.DEFAULT, "mine", 3)).isEmpty();
        assertThat(store.templateVersionTimes(ProjectId.DEFAULT, "mine"))
                .isEqualTo(Map.of(1, NOW.plusSeconds(1), 2, NOW.plusSeconds(2)));
    }

    @Test
    void a_template_goes_with_all_that_is_its_own() {
        store.saveTemplate(template("gone", 1, 1), Optional.of(version("gone", 1, definition("a"))));
        store.saveTemplate(template("kept", 1, 1), Optional.of(version("kept", 1, definition("b"))));
        store.saveBuild(build("gone", NOW, Build.State.READY));
        store.addTemplateUsageLater(ProjectId.DEFAULT, "gone", 3, NOW);
        store.removeTemplate(ProjectId.DEFAULT, "gone", false);
        store.removeTemplate(ProjectId.DEFAULT, "kept", true);
        assertThat(store.templates()).extracting(StoredTemplate::id).containsExactly("kept");
        assertThat(store.templateVersions()).isEmpty();
        assertThat(store.builds(ProjectId.DEFAULT, "gone", 9)).isEmpty();
        assertThat(store.templateUsage(ProjectId.DEFAULT)).isEmpty();
    }

    @Test
    void images_and_the_default_of_templates_are_replaced() {
        store.saveTemplateImage("key", "old", NOW);
        store.saveTemplateImage("key", "new", NOW);
        assertThat(store.templateImages()).isEqualTo(Map.of("key", "new"));
        assertThat(store.defaultTemplate(ProjectId.DEFAULT)).isEmpty();
        store.saveDefaultTemplate(ProjectId.DEFAULT, "a");
        store.saveDefaultTemplate(ProjectId.DEFAULT, "b");
        assertThat(store.defaultTemplate(ProjectId.DEFAULT)).contains("b");
    }

    @Test
    void the_use_of_templates_adds_up() {
        store.addTemplateUsageLater(ProjectId.DEFAULT, "python", 2, NOW);
        store.addTemplateUsageLater(ProjectId.DEFAULT, "python", 3, NOW.plusSeconds(5));
        assertThat(store.templateUsage(ProjectId.DEFAULT))
                .isEqualTo(Map.of("python", new TemplateUsage(5, Optional.of(NOW.plusSeconds(5)))));
    }

    private static Build build(String template, Instant createdAt, Build.State state) {
        return new Build(
                BuildId.random(),
                ProjectId.DEFAULT,
                template,
                3,
                "key",
                state,
                Build.Cause.FIRST_USE,
                true,
                new Build.Step(2, 5, "RUN \"x\""),
                state == Build.State.FAILED
                        ? Optional.of(new Build.Failure("code", "message", "last\nlines"))
                        : Optional.empty(),
                state == Build.State.READY ? Optional.of("digest") : Optional.empty(),
                createdAt,
                Optional.of(createdAt.plusSeconds(1)),
                state.isOver() ? Optional.of(createdAt.plusSeconds(2)) : Optional.empty());
    }

    @Test
    void builds_come_back_the_newest_first_and_by_their_state() {
        Build old = build("a", NOW, Build.State.FAILED);
        Build running = build("a", NOW.plusSeconds(10), Build.State.BUILDING);
        Build other = build("b", NOW, Build.State.QUEUED);
        for (Build build : List.of(old, running, other)) {
            store.saveBuild(build);
        }
        assertThat(store.build(old.id())).contains(old);
        assertThat(store.build(BuildId.random())).isEmpty();
        assertThat(store.builds(ProjectId.DEFAULT, "a", 9)).containsExactly(running, old);
        assertThat(store.builds(ProjectId.DEFAULT, "a", 1)).containsExactly(running);
        assertThat(store.lastBuilds(ProjectId.DEFAULT)).containsExactlyInAnyOrder(running, other);
        assertThat(store.unfinishedBuilds()).containsExactlyInAnyOrder(running, other);
        Build ended = new Build(
                running.id(),
                running.project(),
                "a",
                3,
                "key",
                Build.State.READY,
                running.cause(),
                true,
                new Build.Step(5, 5, "done"),
                Optional.empty(),
                Optional.of("digest"),
                running.createdAt(),
                running.startedAt(),
                Optional.of(NOW.plusSeconds(20)));
        store.saveBuild(ended);
        assertThat(store.build(running.id())).contains(ended);
        assertThat(store.unfinishedBuilds()).containsExactly(other);
    }

    @Test
    void builds_go_by_age_and_number_once_they_have_ended() {
        Build ancient = build("a", NOW.minusSeconds(100), Build.State.READY);
        Build second = build("a", NOW, Build.State.FAILED);
        Build third = build("a", NOW.plusSeconds(1), Build.State.CANCELLED);
        Build running = build("a", NOW.minusSeconds(200), Build.State.BUILDING);
        for (Build build : List.of(ancient, second, third, running)) {
            store.saveBuild(build);
        }
        assertThat(store.removeBuilds(NOW.minusSeconds(50), 9)).containsExactly(ancient.id());
        assertThat(store.removeBuilds(NOW.minusSeconds(50), 1)).containsExactly(second.id());
        assertThat(store.builds(ProjectId.DEFAULT, "a", 9)).containsExactly(third, running);
    }

    @Test
    void registries_are_kept_replaced_and_removed() {
        var first = new StoredRegistry(ProjectId.DEFAULT, "a.example:5000", "me", "sealed", NOW);
        var second = new StoredRegistry(ProjectId.DEFAULT, "b.example", "", "sealed", NOW);
        store.saveRegistry(second);
        store.saveRegistry(first);
        store.saveRegistry(new StoredRegistry(ProjectId.DEFAULT, "b.example", "you", "other", NOW.plusSeconds(1)));
        assertThat(store.registries(ProjectId.DEFAULT))
                .containsExactly(
                        first, new StoredRegistry(ProjectId.DEFAULT, "b.example", "you", "other", NOW.plusSeconds(1)));
        store.removeRegistry(ProjectId.DEFAULT, "b.example");
        store.removeRegistry(ProjectId.DEFAULT, "b.example");
        assertThat(store.registries(ProjectId.DEFAULT)).containsExactly(first);
    }
}
