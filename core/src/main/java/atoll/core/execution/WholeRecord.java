package atoll.core.execution;

import atoll.core.node.NodeEvent;
import atoll.core.node.NodeStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Optional;

/**
 * The output of an execution whose record is all that it said, byte by byte and in its order. Most are: they print a little text to
 * one stream. Their output needs no file on the node.
 */
final class WholeRecord {
    /** Also stands for bytes that were no UTF-8, which the text can't give back. */
    private static final char REPLACEMENT = '\ufffd';

    private final ExecutionOutcome outcome;
    private final byte[] stdout;

    private WholeRecord(ExecutionOutcome outcome, byte[] stdout) {
        this.outcome = outcome;
        this.stdout = stdout;
    }

    /** Empty where something is missing in the record, or where it does not tell what came first. */
    static Optional<WholeRecord> of(ExecutionOutcome outcome) {
        if (outcome.truncated()
                || outcome.stderr().totalBytes() > 0
                || !outcome.results().stream().allMatch(ExecutionResult::main)
                || outcome.stdout().text().indexOf(REPLACEMENT) >= 0) {
            return Optional.empty();
        }
        byte[] bytes = outcome.stdout().text().getBytes(StandardCharsets.UTF_8);
        return bytes.length == outcome.stdout().totalBytes()
                ? Optional.of(new WholeRecord(outcome, bytes))
                : Optional.empty();
    }

    /** The bytes of one stream from an offset on. */
    OutputReader read(StandardStream stream, long offset) {
        if (stream == StandardStream.STDERR || offset >= stdout.length) {
            return reader(Optional.empty());
        }
        ByteBuffer data = ByteBuffer.wrap(stdout).position((int) offset).slice();
        return reader(Optional.of(new OutputReader.Piece(offset, data, 0)));
    }

    private static OutputReader reader(Optional<OutputReader.Piece> only) {
        return new OutputReader() {
            private Optional<Piece> rest = only;

            @Override
            public Optional<Piece> next() {
                Optional<Piece> piece = rest;
                rest = Optional.empty();
                return piece;
            }

            @Override
            public void close() {}
        };
    }

    /** All that it said, as its node would tell it. */
    NodeStream<NodeEvent> events() {
        Deque<NodeEvent> events = new ArrayDeque<>();
        events.add(new NodeEvent.Started(events.size() + 1, outcome.startedAt()));
        if (stdout.length > 0) {
            events.add(new NodeEvent.Output(events.size() + 1, StandardStream.STDOUT, 0, ByteBuffer.wrap(stdout)));
        }
        for (ExecutionResult result : outcome.results()) {
            events.add(new NodeEvent.Result(events.size() + 1, result));
        }
        events.add(new NodeEvent.Finished(
                events.size() + 1,
                new NodeEvent.Finish(
                        outcome.exitReason(),
                        outcome.error(),
                        outcome.exitCode(),
                        outcome.signal(),
                        outcome.stateKept(),
                        outcome.detail(),
                        outcome.startedAt(),
                        outcome.duration(),
                        outcome.startedAt().plus(outcome.duration()),
                        stdout.length,
                        0,
                        outcome.memory(),
                        outcome.files())));
        return new NodeStream<>() {
            @Override
            public Optional<NodeEvent> next() {
                return Optional.ofNullable(events.poll());
            }

            @Override
            public void close() {}
        };
    }
}
