package atoll.core.execution;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import java.util.Optional;

/** A node's reader, with its failures in the words of callers. */
final class SpoolReader implements OutputReader {
    private final OutputReader reader;
    private final ExecutionId id;

    SpoolReader(OutputReader reader, ExecutionId id) {
        this.reader = reader;
        this.id = id;
    }

    @Override
    public Optional<Piece> next() throws InterruptedException {
        try {
            return reader.next();
        } catch (AtollException e) {
            throw translated(e, id);
        }
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
