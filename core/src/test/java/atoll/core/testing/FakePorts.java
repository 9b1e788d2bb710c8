package atoll.core.testing;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.port.ListeningPort;
import atoll.core.port.Tunnel;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.LinkedBlockingQueue;

/** The ports of one sandbox: what listens sends back what it gets, and ends when the caller has ended. */
public final class FakePorts {
    private final Map<Integer, ListeningPort> listening = new TreeMap<>();
    private int open;

    /** Something listens from now on. */
    public synchronized void listen(int port, String address) {
        listening.put(port, new ListeningPort(port, address, 7, "echo", Optional.empty()));
    }

    /** Tunnels that are open. */
    public synchronized int open() {
        return open;
    }

    /** Writes what listens, for a snapshot. */
    synchronized void save(DataOutputStream out) throws IOException {
        out.writeInt(listening.size());
        for (ListeningPort port : listening.values()) {
            out.writeInt(port.port());
            out.writeUTF(port.address());
        }
    }

    /** Only what was saved listens from now on. */
    synchronized void load(DataInputStream in) throws IOException {
        listening.clear();
        for (int left = in.readInt(); left > 0; left--) {
            listen(in.readInt(), in.readUTF());
        }
    }

    synchronized List<ListeningPort> list() {
        return List.copyOf(listening.values());
    }

    synchronized Tunnel connect(int port) {
        if (!listening.containsKey(port)) {
            throw new AtollException(ErrorCode.PORT_CLOSED, "port " + port + ": connection refused", "", "");
        }
        open++;
        return new Echo();
    }

    private synchronized void ended() {
        open--;
    }

    private final class Echo implements Tunnel {
        /** Empty at the end. */
        private final LinkedBlockingQueue<Optional<ByteBuffer>> back = new LinkedBlockingQueue<>();

        private boolean closed;

        @Override
        public Optional<ByteBuffer> receive() throws InterruptedException {
            Optional<ByteBuffer> next = back.take();
            if (next.isEmpty()) {
                back.add(next);
            }
            return next;
        }

        @Override
        public void send(ByteBuffer piece) {
            back.add(Optional.of(piece));
        }

        @Override
        public void end() {
            back.add(Optional.empty());
        }

        @Override
        public void close() {
            synchronized (this) {
                if (closed) {
                    return;
                }
                closed = true;
            }
            back.add(Optional.empty());
            ended();
        }
    }
}
