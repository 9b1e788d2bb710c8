package atoll.http;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** A request's body for those who read streams. It remembers why it failed, since its reader may put that in words of its own. */
public final class BodyInput extends InputStream {
    private final BodyStream body;
    private ByteBuffer piece = ByteBuffer.allocate(0);
    private boolean ended;
    private @Nullable Exception failure;

    public BodyInput(BodyStream body) {
        this.body = body;
    }

    /** Fails again as reading did, if it did. */
    public void rethrow() throws IOException {
        switch (failure) {
            case null -> {}
            case IOException e -> throw e;
            case RuntimeException e -> throw e;
            case Exception e -> throw new IOException(e);
        }
    }

    private boolean fill() throws IOException {
        try {
            while (!piece.hasRemaining() && !ended) {
                Optional<ByteBuffer> next = body.next();
                ended = next.isEmpty();
                next.ifPresent(bytes -> piece = bytes);
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while a request's body was read");
        } catch (IOException | RuntimeException e) {
            failure = e;
            throw e;
        }
        return piece.hasRemaining();
    }

    @Override
    public int read() throws IOException {
        return fill() ? piece.get() & 0xff : -1;
    }

    @Override
    public int read(byte[] into, int offset, int length) throws IOException {
        if (length == 0) {
            return 0;
        }
        if (!fill()) {
            return -1;
        }
        int count = Math.min(length, piece.remaining());
        piece.get(into, offset, count);
        return count;
    }

    @Override
    public int available() {
        return piece.remaining();
    }
}
