package atoll.core.execution;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import java.time.Duration;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * Reads an execution's output wherever that is: at its node, or, when the node has let go of it because all of it is on record, there.
 * One that is about to be started is waited for. Failures are in the words of callers.
 */
final class SpoolReader implements OutputReader {
    /** Where to read. */
    interface Source {
        OutputReader onNode(long offset);

        /** What the record has from an offset on, if it has all. */
        Optional<OutputReader> onRecord(long offset);

        /** Whether the node will know of it in a moment. */
        boolean starting();
    }

    /** The node is told right after the record is written; this is for a machine that is busy. */
    static final Duration START_LIMIT = Duration.ofSeconds(10);

    static final Duration PAUSE = Duration.ofMillis(10);

    private final ExecutionId id;
    private final Source source;
    private final long begun = System.nanoTime();
    private long offset;
    /** Null where the node knew nothing of it. */
    private @Nullable OutputReader reader;

    SpoolReader(ExecutionId id, long offset, Source source) {
        this.id = id;
        this.source = source;
        this.offset = offset;
        this.reader = onNode();
    }

    private @Nullable OutputReader onNode() {
        try {
            return source.onNode(offset);
        } catch (AtollException e) {
            if (e.code() != ErrorCode.NOT_FOUND) {
                throw e;
            }
            return null;
        }
    }

    @Override
    public Optional<Piece> next() throws InterruptedException {
        while (true) {
            if (reader != null) {
                try {
                    Optional<Piece> piece = reader.next();
                    piece.ifPresent(p -> offset = p.offset() + p.data().remaining());
                    return piece;
                } catch (AtollException e) {
                    if (e.code() != ErrorCode.NOT_FOUND) {
                        throw e;
                    }
                }
            }
            // Asked before the record: in the other order it could be written in between.
            boolean starting = source.starting();
            Optional<OutputReader> recorded = source.onRecord(offset);
            if (recorded.isEmpty() && !(starting && isEarly(begun))) {
                throw expired(id);
            }
            close();
            if (recorded.isPresent()) {
                reader = recorded.get();
            } else {
                Thread.sleep(PAUSE);
                reader = onNode();
            }
        }
    }

    static boolean isEarly(long begunNanos) {
        return System.nanoTime() - begunNanos < START_LIMIT.toNanos();
    }

    @Override
    public void close() {
        if (reader != null) {
            reader.close();
        }
    }

    static AtollException translated(AtollException e, ExecutionId id) {
        return e.code() == ErrorCode.NOT_FOUND ? expired(id) : e;
    }

    static AtollException expired(ExecutionId id) {
        return new AtollException(
                ErrorCode.OUTPUT_EXPIRED,
                "execution: the full output of " + id + " is not there any more",
                "Output is kept until retention removes it.",
                "The record of the execution has its beginning and end.");
    }
}
