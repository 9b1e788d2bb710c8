package atoll.core.execution;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.SandboxId;
import atoll.core.node.NodeEvent;
import java.time.Duration;
import java.time.Instant;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** What becomes of displayed values in an outcome and on record. */
class TranscriptTest {
    private final Transcript transcript = new Transcript();

    private static MimeBundle bundle(String text) {
        return MimeBundle.ofText(Optional.of(text));
    }

    private static MimeBundle withPicture(String text, int size) {
        String json = "{\"text/plain\":\"" + text + "\",\"image/png\":\"" + "A".repeat(size) + "\"}";
        return new MimeBundle(
                json, Optional.of(text), Map.of("text/plain", text.length() + 2L, "image/png", size + 2L));
    }

    private static ExecutionResult shown(String id, MimeBundle data, boolean update, boolean clear) {
        return new ExecutionResult(
                false,
                data,
                0,
                ExecutionResult.NO_METADATA,
                Map.of(),
                Optional.of(id).filter(name -> !name.isEmpty()),
                update,
                clear);
    }

    private ExecutionOutcome outcome() {
        return transcript.finish(
                ExecutionId.random(),
                SandboxId.random(),
                ContextId.random(),
                new NodeEvent.Finish(
                        ExitReason.COMPLETED,
                        Optional.empty(),
                        OptionalInt.of(0),
                        OptionalInt.empty(),
                        true,
                        "",
                        Instant.EPOCH,
                        Duration.ofMillis(1),
                        Instant.EPOCH.plusMillis(1),
                        0,
                        0,
                        Optional.empty(),
                        Optional.of(new ChangedFiles(
                                List.of(new ChangedFile("/home/user/a.csv", 3, Instant.EPOCH)), false))));
    }

    private static List<String> texts(ExecutionOutcome outcome) {
        return outcome.results().stream()
                .map(result -> result.data().plainText().orElse("-"))
                .toList();
    }

    @Test
    void an_update_takes_the_place_of_what_has_its_name() {
        transcript.add(shown("a", bundle("1"), false, false));
        transcript.add(shown("b", bundle("2"), false, false));
        transcript.add(shown("a", bundle("3"), true, false));
        transcript.add(shown("unknown", bundle("4"), true, false));
        ExecutionOutcome outcome = outcome();
        assertThat(texts(outcome)).containsExactly("3", "2", "4");
        assertThat(outcome.results()).noneMatch(ExecutionResult::update);
        assertThat(outcome.output().text()).isEqualTo("1\n2\n4");
    }

    @Test
    void a_hundred_updates_of_one_value_take_the_room_of_one() {
        String text = "x".repeat(1 << 20);
        for (int i = 0; i < 100; i++) {
            transcript.add(shown("bar", bundle(text), i > 0, false));
        }
        ExecutionOutcome outcome = outcome();
        assertThat(outcome.results()).hasSize(1);
        assertThat(outcome.results().getFirst().truncatedBytes()).isZero();
    }

    @Test
    void clearing_forgets_what_was_displayed_and_not_the_value() {
        transcript.add(shown("", bundle("1"), false, false));
        transcript.add(new ExecutionResult(true, bundle("value"), 0));
        transcript.add(shown("", bundle("2"), false, true));
        transcript.add(shown("", bundle("3"), false, false));
        assertThat(texts(outcome())).containsExactly("value", "2", "3");
        var emptied = new Transcript();
        emptied.add(shown("", bundle("1"), false, false));
        emptied.add(shown("", new MimeBundle("{}", Optional.empty()), false, true));
        assertThat(emptied.finish(ExecutionId.random(), SandboxId.random(), ContextId.random(), finishOf(outcome()))
                        .results())
                .isEmpty();
    }

    private static NodeEvent.Finish finishOf(ExecutionOutcome o) {
        return new NodeEvent.Finish(
                o.exitReason(),
                o.error(),
                o.exitCode(),
                o.signal(),
                o.stateKept(),
                o.detail(),
                o.startedAt(),
                o.duration(),
                0,
                0,
                o.memory());
    }

    @Test
    void what_is_over_the_limit_keeps_its_text_and_tells_the_rest_by_type() {
        for (int i = 0; i < 4; i++) {
            transcript.add(new ExecutionResult(false, withPicture("figure " + i, 6 << 20), 0));
        }
        ExecutionOutcome outcome = outcome();
        assertThat(texts(outcome)).containsExactly("figure 0", "figure 1", "figure 2", "figure 3");
        ExecutionResult last = outcome.results().get(3);
        assertThat(last.data().json()).isEqualTo("{\"text/plain\":\"figure 3\"}");
        assertThat(last.leftOut()).isEqualTo(Map.of("image/png", (6L << 20) + 2));
        assertThat(last.truncatedBytes()).isGreaterThanOrEqualTo(6 << 20);
        assertThat(outcome.results().getFirst().truncatedBytes()).isZero();
        assertThat(outcome.truncated()).isTrue();
    }

    @Test
    void a_record_keeps_the_text_of_what_it_has_no_room_for() {
        transcript.add(new ExecutionResult(false, withPicture("small", 100_000), 0));
        transcript.add(new ExecutionResult(false, withPicture("large", 300_000), 0));
        transcript.add(new ExecutionResult(false, bundle("t".repeat(200_000)), 0));
        transcript.add(new ExecutionResult(true, bundle("value"), 0));
        ExecutionOutcome record = Transcript.forRecord(outcome());
        assertThat(record.results().stream().map(result -> result.leftOut().keySet()))
                .containsExactly(Set.of(), Set.of("image/png"), Set.of("text/plain"), Set.of());
        assertThat(record.results().get(2).data().plainText().orElseThrow()).hasSize(1024);
        assertThat(record.truncated()).isTrue();
        assertThat(record.files().orElseThrow().files().getFirst().mimeType()).isEqualTo("text/csv");
    }

    @Test
    void a_text_becomes_the_same_text_in_json() {
        String hostile = "\"\\\b\n\t\0\u001f é 😀 \ud800 </script>\u2028";
        assertThat(MimeBundle.ofText(Optional.of(hostile)).json())
                .isEqualTo(
                        "{\"text/plain\":\"\\\"\\\\\\u0008\\u000a\\u0009\\u0000\\u001f é \\ud83d\\ude00 \\ud800 </script>\u2028\"}");
        assertThat(MimeBundle.ofText(Optional.empty()).isEmpty()).isTrue();
    }

    @Test
    void a_name_says_what_a_file_is() {
        assertThat(
                        List.of("/a/plot.PNG", "/a.d/Makefile", "/a/x.tar.gz", "/a/.png/x", "/a/b.", "/a/data.parquet")
                                .stream()
                                .map(path -> new ChangedFile(path, 0, Instant.EPOCH).mimeType()))
                .containsExactly(
                        "image/png",
                        "application/octet-stream",
                        "application/gzip",
                        "application/octet-stream",
                        "application/octet-stream",
                        "application/vnd.apache.parquet");
    }

    @Test
    void a_list_of_files_is_cut_to_its_bounds() {
        ChangedFile file = new ChangedFile("/x", 0, Instant.EPOCH);
        ChangedFiles many = new ChangedFiles(Collections.nCopies(1001, file), false);
        assertThat(many.files()).hasSize(1000);
        assertThat(many.incomplete()).isTrue();
        assertThat(new ChangedFiles(List.of(file, file, file), false).within(5))
                .isEqualTo(new ChangedFiles(List.of(file, file), true));
    }
}
