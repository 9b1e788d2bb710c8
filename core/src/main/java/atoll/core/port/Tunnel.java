package atoll.core.port;

import java.nio.ByteBuffer;
import java.util.Optional;

/** One TCP connection into a sandbox. One thread may receive while another one sends; {@link #close} may come from any. */
public interface Tunnel extends AutoCloseable {
    int LARGEST_PIECE = 64 << 10;

    /** Waits for bytes from inside; empty once that side has said that no more come. */
    Optional<ByteBuffer> receive() throws InterruptedException;

    /** Sends on at the other side's pace. The buffer, of at most {@link #LARGEST_PIECE}, is given away. */
    void send(ByteBuffer piece) throws InterruptedException;

    /** No more comes from this side; the other one may go on. */
    void end();

    /** Ends both ways. */
    @Override
    void close();
}
