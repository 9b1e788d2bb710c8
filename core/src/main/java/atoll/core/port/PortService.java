package atoll.core.port;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.core.node.NodePorts;
import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.SandboxService;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Optional;

/** The ports of sandboxes, by the node. */
public final class PortService implements Ports {
    private static final int HIGHEST = 65_535;

    private final SandboxService sandboxes;
    private final NodePorts node;

    public PortService(SandboxService sandboxes, NodePorts node) {
        this.sandboxes = sandboxes;
        this.node = node;
    }

    @Override
    public List<ListeningPort> list(Caller caller, SandboxId id) {
        LiveSandbox sandbox = sandboxes.requireRunning(caller, id);
        try {
            return node.ports(sandbox.box());
        } catch (RuntimeException e) {
            throw sandboxes.translated(sandbox, e);
        }
    }

    @Override
    public Tunnel tunnel(Caller caller, SandboxId id, int port) {
        LiveSandbox sandbox = sandboxes.requireRunning(caller, id);
        if (port < 1 || port > HIGHEST) {
            throw AtollException.invalid(
                    "port: %d (expected: 1 to %d)".formatted(port, HIGHEST), "Name a TCP port of the sandbox.");
        }
        try {
            return new Used(node.tunnel(sandbox.box(), port), sandbox);
        } catch (RuntimeException e) {
            throw sandboxes.translated(sandbox, e);
        }
    }

    /** A connection whose traffic is activity of its sandbox. */
    private final class Used implements Tunnel {
        private final Tunnel tunnel;
        private final LiveSandbox sandbox;

        Used(Tunnel tunnel, LiveSandbox sandbox) {
            this.tunnel = tunnel;
            this.sandbox = sandbox;
        }

        @Override
        public Optional<ByteBuffer> receive() throws InterruptedException {
            Optional<ByteBuffer> piece = tunnel.receive();
            sandboxes.touch(sandbox);
            return piece;
        }

        @Override
        public void send(ByteBuffer piece) throws InterruptedException {
            sandboxes.touch(sandbox);
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
}
