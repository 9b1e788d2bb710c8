package atoll.core.execution;

import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.SandboxId;
import atoll.core.node.NodeEvent;
import atoll.core.text.Captured;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Sums up what an execution says into its outcome, in bounded memory. Not for several threads. */
final class Transcript {
    /** Of each text in the store. */
    static final int RECORD_LIMIT = 128 * 1024;

    private static final int RESULTS_LIMIT = 16 * 1024 * 1024;
    private static final int RECORD_RESULTS_LIMIT = 256 * 1024;
    private static final int MAX_RESULTS = 1000;
    /** Of the text of a value that there is no room for otherwise: in an outcome, and in a record. */
    private static final int SHORT_TEXT = 4096;

    private static final int RECORD_SHORT_TEXT = 1024;
    private static final int TRACEBACK_LIMIT = 256 * 1024;

    private final Printing printing = new Printing();
    private final List<ExecutionResult> results = new ArrayList<>();
    private long resultChars;
    private boolean resultsLeftOut;

    void add(NodeEvent.Output output) {
        printing.add(output.stream(), output.data());
    }

    void add(NodeEvent.Gap gap) {
        printing.skip(gap.stream(), gap.bytes());
    }

    void add(ExecutionResult result) {
        if (result.clear()) {
            results.removeIf(shown -> !shown.main());
            resultChars = results.stream().mapToLong(ExecutionResult::size).sum();
            if (result.data().isEmpty()) {
                return;
            }
        }
        if (result.update() && replace(result)) {
            return;
        }
        if (results.size() >= MAX_RESULTS) {
            resultsLeftOut = true;
            return;
        }
        results.add(fitting(result));
        result.data().plainText().ifPresent(printing::printOnOwnLine);
    }

    /** Puts it where the value of the same name is; false where there is none. A terminal would not show it anew. */
    private boolean replace(ExecutionResult result) {
        boolean found = false;
        for (int i = 0; i < results.size(); i++) {
            ExecutionResult shown = results.get(i);
            if (shown.displayId().isPresent() && shown.displayId().equals(result.displayId())) {
                resultChars -= shown.size();
                results.set(i, fitting(result));
                found = true;
            }
        }
        return found;
    }

    /** The result as there is room for it, and counted. */
    private ExecutionResult fitting(ExecutionResult result) {
        ExecutionResult kept = resultChars + result.size() > RESULTS_LIMIT ? result.textOnly(SHORT_TEXT) : result;
        resultChars += kept.size();
        return kept.settled();
    }

    ExecutionOutcome finish(ExecutionId id, SandboxId sandbox, ContextId context, NodeEvent.Finish finish) {
        printing.endStreams();
        // A person at a terminal would see the traceback; no kernel prints it itself.
        finish.error().ifPresent(error -> {
            String shown = error.traceback().isBlank() ? error.name() + ": " + error.message() : error.traceback();
            printing.printOnOwnLine(shown);
        });
        PrintedText printed = printing.end(finish.stdoutBytes(), finish.stderrBytes());
        boolean truncated = printed.truncated()
                || resultsLeftOut
                || results.stream().anyMatch(result -> result.truncatedBytes() > 0);
        return new ExecutionOutcome(
                id,
                sandbox,
                context,
                printed.output(),
                printed.stdout(),
                printed.stderr(),
                results,
                finish.error(),
                finish.reason(),
                finish.exitCode(),
                finish.signal(),
                finish.stateKept(),
                finish.detail(),
                finish.memory(),
                finish.startedAt(),
                finish.duration(),
                truncated,
                finish.files());
    }

    /** The outcome as it goes on record: the same facts, less text. */
    static ExecutionOutcome forRecord(ExecutionOutcome o) {
        List<ExecutionResult> kept = new ArrayList<>();
        long chars = 0;
        boolean resultsCut = false;
        for (ExecutionResult result : o.results()) {
            boolean fits = chars + result.size() <= RECORD_RESULTS_LIMIT;
            ExecutionResult recorded = fits ? result : result.textOnly(RECORD_SHORT_TEXT);
            resultsCut |= !fits;
            if (fits || chars + recorded.size() <= RECORD_RESULTS_LIMIT) {
                chars += recorded.size();
                kept.add(recorded);
            }
        }
        CapturedText output = Captured.shortened(o.output(), RECORD_LIMIT);
        CapturedText stdout = Captured.shortened(o.stdout(), RECORD_LIMIT);
        CapturedText stderr = Captured.shortened(o.stderr(), RECORD_LIMIT);
        Optional<ExecutionError> error = o.error()
                .map(e -> new ExecutionError(
                        cut(e.name(), 1000), cut(e.message(), TRACEBACK_LIMIT), cut(e.traceback(), TRACEBACK_LIMIT)));
        boolean truncated =
                o.truncated() || output.truncated() || stdout.truncated() || stderr.truncated() || resultsCut;
        return new ExecutionOutcome(
                o.executionId(),
                o.sandboxId(),
                o.contextId(),
                output,
                stdout,
                stderr,
                kept,
                error,
                o.exitReason(),
                o.exitCode(),
                o.signal(),
                o.stateKept(),
                o.detail(),
                o.memory(),
                o.startedAt(),
                o.duration(),
                truncated,
                o.files());
    }

    private static String cut(String text, int limit) {
        return text.length() <= limit ? text : text.substring(0, limit) + "…";
    }
}
