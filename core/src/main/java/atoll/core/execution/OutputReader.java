package atoll.core.execution;

import java.nio.ByteBuffer;
import java.util.Optional;

/** Reads the raw bytes of one stream of an execution from its spool, at the reader's pace. */
public interface OutputReader extends AutoCloseable {
    /** Waits for the next piece; empty at the end. */
    Optional<Piece> next() throws InterruptedException;

    @Override
    void close();

    /**
     * Consecutive bytes.
     *
     * @param gapBytes bytes that were dropped just before this piece
     */
    record Piece(long offset, ByteBuffer data, long gapBytes) {}
}
