package atoll.core.node;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.execution.OutputReader;
import java.util.Optional;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/** Raw output, over as many readers as it takes: one that breaks is taken up again at the byte where it broke. */
public final class OutputFollower implements OutputReader {
    /** Opens a reader at an offset. */
    @FunctionalInterface
    public interface Source {
        OutputReader openAt(long offset);
    }

    private final PatientNode node;
    private final Source source;
    private final UnaryOperator<AtollException> translation;
    private long offset;
    private volatile @Nullable OutputReader reader;
    private volatile boolean closed;

    /** {@code translation} makes of what else the node says what the reader is told. */
    public OutputFollower(PatientNode node, long offset, Source source, UnaryOperator<AtollException> translation) {
        this.node = node;
        this.source = source;
        this.translation = translation;
        this.offset = offset;
    }

    @Override
    public Optional<Piece> next() throws InterruptedException {
        long start = System.nanoTime();
        for (int tries = 0; !closed; tries++) {
            try {
                OutputReader open = reader;
                if (open == null) {
                    open = source.openAt(offset);
                    reader = open;
                    if (closed) {
                        break;
                    }
                }
                Optional<Piece> piece = open.next();
                piece.ifPresent(p -> offset = p.offset() + p.data().remaining());
                return piece;
            } catch (AtollException e) {
                closeReader();
                if (closed) {
                    break;
                }
                if (e.code() != ErrorCode.NODE_UNAVAILABLE) {
                    throw translation.apply(e);
                }
                if (!node.pause(tries, start)) {
                    if (Thread.interrupted()) {
                        throw new InterruptedException();
                    }
                    node.requireOwned();
                    throw e;
                }
            }
        }
        closeReader();
        return Optional.empty();
    }

    @Override
    public void close() {
        closed = true;
        closeReader();
    }

    private void closeReader() {
        OutputReader open = reader;
        if (open != null) {
            open.close();
            reader = null;
        }
    }
}
