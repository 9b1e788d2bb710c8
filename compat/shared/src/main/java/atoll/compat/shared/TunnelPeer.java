package atoll.compat.shared;

import atoll.core.port.Tunnel;
import atoll.http.PeerConnection;
import java.nio.ByteBuffer;
import java.util.Optional;

/** A connection into a sandbox, as HTTP wants it. */
public record TunnelPeer(Tunnel tunnel) implements PeerConnection {
    @Override
    public Optional<ByteBuffer> receive() throws InterruptedException {
        return tunnel.receive();
    }

    @Override
    public void send(ByteBuffer piece) throws InterruptedException {
        tunnel.send(piece);
    }

    @Override
    public void end() {
        tunnel.end();
    }

    @Override
    public void close() {
        tunnel.close();
    }
}
