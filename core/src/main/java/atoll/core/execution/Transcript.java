package atoll.core.execution;

import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.SandboxId;
import atoll.core.node.NodeEvent;
import atoll.core.text.Captured;
import atoll.core.text.HeadAndTail;
import atoll.core.text.TerminalText;
import atoll.core.text.Utf8Joiner;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Sums up what an execution says into its outcome, in bounded memory. Not for several threads. */
final class Transcript {
    /** Of each stream, and of the terminal's text, in a reply. */
    static final int REPLY_LIMIT = 1024 * 1024;
    /** Of each in the store. */
    static final int RECORD_LIMIT = 128 * 1024;

    private static final int RESULTS_LIMIT = 16 * 1024 * 1024;
    private static final int RECORD_RESULTS_LIMIT = 256 * 1024;
    private static final int MAX_RESULTS = 1000;
    private static final int TRACEBACK_LIMIT = 256 * 1024;

    private final HeadAndTail stdout = new HeadAndTail(REPLY_LIMIT);
    private final HeadAndTail stderr = new HeadAndTail(REPLY_LIMIT);
    private final Utf8Joiner stdoutText = new Utf8Joiner();
    private final Utf8Joiner stderrText = new Utf8Joiner();
    private final TerminalText terminal = new TerminalText(REPLY_LIMIT);
    private final List<ExecutionResult> results = new ArrayList<>();
    private long resultChars;
    private boolean resultsLeftOut;
    private boolean lineOpen;

    void add(NodeEvent.Output output) {
        boolean out = output.stream() == StandardStream.STDOUT;
        ByteBuffer data = output.data();
        (out ? stdout : stderr).add(data.duplicate());
        Utf8Joiner joiner = out ? stdoutText : stderrText;
        if (!data.hasRemaining()) {
            return;
        }
        if (!joiner.isOpen() && terminal.printPlain(data)) {
            lineOpen = data.get(data.limit() - 1) != '\n';
        } else {
            print(joiner.decode(data.duplicate()));
        }
    }

    void add(NodeEvent.Gap gap) {
        boolean out = gap.stream() == StandardStream.STDOUT;
        (out ? stdout : stderr).skip(gap.bytes());
        print((out ? stdoutText : stderrText).end());
        terminal.skip(gap.bytes());
        lineOpen = false;
    }

    void add(ExecutionResult result) {
        resultChars += result.data().json().length();
        if (results.size() >= MAX_RESULTS || resultChars > RESULTS_LIMIT) {
            resultsLeftOut = true;
            return;
        }
        results.add(result);
        result.data().plainText().ifPresent(this::printOnOwnLine);
    }

    ExecutionOutcome finish(ExecutionId id, SandboxId sandbox, ContextId context, NodeEvent.Finish finish) {
        print(stdoutText.end());
        print(stderrText.end());
        // A person at a terminal would see the traceback; no kernel prints it itself.
        finish.error().ifPresent(error -> {
            String shown = error.traceback().isBlank() ? error.name() + ": " + error.message() : error.traceback();
            printOnOwnLine(shown);
        });
        HeadAndTail seen = terminal.end();
        CapturedText out = Captured.text(stdout, Math.max(finish.stdoutBytes(), stdout.total()), false);
        CapturedText err = Captured.text(stderr, Math.max(finish.stderrBytes(), stderr.total()), false);
        CapturedText output = Captured.text(seen, out.totalBytes() + err.totalBytes(), true);
        boolean truncated = out.truncated()
                || err.truncated()
                || output.truncated()
                || resultsLeftOut
                || results.stream().anyMatch(result -> result.truncatedBytes() > 0);
        return new ExecutionOutcome(
                id,
                sandbox,
                context,
                output,
                out,
                err,
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

    private void print(String text) {
        if (!text.isEmpty()) {
            lineOpen = text.charAt(text.length() - 1) != '\n';
            terminal.print(text);
        }
    }

    private void printOnOwnLine(String text) {
        if (lineOpen) {
            print("\n");
        }
        print(text.endsWith("\n") ? text : text + "\n");
    }
}
