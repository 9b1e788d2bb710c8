package atoll.http;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Optional;

/** A byte stream to a server that a request is passed on to. One thread may receive while another one sends; {@link #close} may come from any. */
public interface PeerConnection extends AutoCloseable {
    /** Waits for bytes; empty once the other side has said that no more come. */
    Optional<ByteBuffer> receive() throws IOException, InterruptedException;

    /** Sends at most 64 KiB, at the other side's pace. The buffer is given away. */
    void send(ByteBuffer piece) throws IOException, InterruptedException;

    /** No more comes from this side. */
    void end() throws IOException, InterruptedException;

    @Override
    void close();
}
