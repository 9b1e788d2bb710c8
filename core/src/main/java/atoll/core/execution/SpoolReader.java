package atoll.core.execution;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import java.util.Optional;
import java.util.function.LongFunction;

/** A node's reader. When the node has let go of the output because all of it is on record, that goes on; else failures are in the words of callers. */
final class SpoolReader implements OutputReader {
    private final ExecutionId id;
    private final LongFunction<Optional<OutputReader>> onRecord;
    private OutputReader reader;
    private long offset;

    /** @param onRecord what the record has from an offset on, if it has all */
    SpoolReader(OutputReader reader, ExecutionId id, long offset, LongFunction<Optional<OutputReader>> onRecord) {
        this.reader = reader;
        this.id = id;
        this.offset = offset;
        this.onRecord = onRecord;
    }

    @Override
    public Optional<Piece> next() throws InterruptedException {
        Optional<Piece> piece;
        try {
            piece = reader.next();
        } catch (AtollException e) {
            if (e.code() != ErrorCode.NOT_FOUND) {
                throw e;
            }
            OutputReader recorded = onRecord.apply(offset).orElseThrow(() -> expired(id));
            reader.close();
            reader = recorded;
            piece = recorded.next();
        }
        piece.ifPresent(p -> offset = p.offset() + p.data().remaining());
        return piece;
    }

    @Override
    public void close() {
        reader.close();
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
