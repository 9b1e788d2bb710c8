package atoll.core.execution;

import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import java.time.Instant;
import java.util.List;
import java.util.Optional;

/**
 * What is on record of an execution, also long after its sandbox is gone.
 *
 * @param code the code, up to a bound
 * @param codeBytes how long the code was
 * @param outcome empty while it runs; its texts are shorter than in the reply, their byte counts are not
 */
public record ExecutionRecord(
        ExecutionId id,
        ProjectId project,
        SandboxId sandboxId,
        ContextId contextId,
        Language language,
        String code,
        long codeBytes,
        Instant createdAt,
        Optional<ExecutionOutcome> outcome) {
    /** How many characters of each text a list gives: a page of a thousand records stays at a few megabytes. */
    public static final int LISTED_CHARS = 2048;

    /** This record as a list gives it: the beginning of each text, and results only if they are small. The byte counts stay. */
    public ExecutionRecord listed() {
        return new ExecutionRecord(
                id,
                project,
                sandboxId,
                contextId,
                language,
                beginning(code),
                codeBytes,
                createdAt,
                outcome.map(ExecutionRecord::listed));
    }

    private static ExecutionOutcome listed(ExecutionOutcome o) {
        CapturedText output = beginning(o.output());
        CapturedText stdout = beginning(o.stdout());
        CapturedText stderr = beginning(o.stderr());
        long chars = o.results().stream()
                .mapToLong(result -> result.data().json().length())
                .sum();
        List<ExecutionResult> results = chars <= LISTED_CHARS ? o.results() : List.of();
        return new ExecutionOutcome(
                o.executionId(),
                o.sandboxId(),
                o.contextId(),
                output,
                stdout,
                stderr,
                results,
                o.error()
                        .map(e -> new ExecutionError(
                                beginning(e.name()), beginning(e.message()), beginning(e.traceback()))),
                o.exitReason(),
                o.exitCode(),
                o.signal(),
                o.stateKept(),
                beginning(o.detail()),
                o.memory(),
                o.startedAt(),
                o.duration(),
                o.truncated()
                        || output.truncated()
                        || stdout.truncated()
                        || stderr.truncated()
                        || results.size() < o.results().size(),
                o.files().map(files -> files.within(LISTED_CHARS)));
    }

    private static CapturedText beginning(CapturedText text) {
        String kept = beginning(text.text());
        return kept.length() == text.text().length() ? text : new CapturedText(kept, text.totalBytes(), true);
    }

    private static String beginning(String text) {
        if (text.length() <= LISTED_CHARS) {
            return text;
        }
        return text.substring(
                0, Character.isHighSurrogate(text.charAt(LISTED_CHARS - 1)) ? LISTED_CHARS - 1 : LISTED_CHARS);
    }
}
