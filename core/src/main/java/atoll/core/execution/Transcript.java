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
        resultChars += result.data().json().length();
        if (results.size() >= MAX_RESULTS || resultChars > RESULTS_LIMIT) {
            resultsLeftOut = true;
            return;
        }
        results.add(result);
        result.data().plainText().ifPresent(printing::printOnOwnLine);
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
                truncated);
    }

    /** The outcome as it goes on record: the same facts, less text. */
    static ExecutionOutcome forRecord(ExecutionOutcome o) {
        List<ExecutionResult> kept = new ArrayList<>();
        long chars = 0;
        for (ExecutionResult result : o.results()) {
            chars += result.data().json().length();
            if (chars <= RECORD_RESULTS_LIMIT) {
                kept.add(result);
            }
        }
        CapturedText output = Captured.shortened(o.output(), RECORD_LIMIT);
        CapturedText stdout = Captured.shortened(o.stdout(), RECORD_LIMIT);
        CapturedText stderr = Captured.shortened(o.stderr(), RECORD_LIMIT);
        Optional<ExecutionError> error = o.error()
                .map(e -> new ExecutionError(
                        cut(e.name(), 1000), cut(e.message(), TRACEBACK_LIMIT), cut(e.traceback(), TRACEBACK_LIMIT)));
        boolean truncated = o.truncated()
                || output.truncated()
                || stdout.truncated()
                || stderr.truncated()
                || kept.size() < o.results().size();
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
                truncated);
    }

    private static String cut(String text, int limit) {
        return text.length() <= limit ? text : text.substring(0, limit) + "…";
    }
}
