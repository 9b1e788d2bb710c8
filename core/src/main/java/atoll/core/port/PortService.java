package atoll.core.port;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.core.node.NodePorts;
import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.SandboxService;
import java.util.List;

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
            return node.tunnel(sandbox.box(), port);
        } catch (RuntimeException e) {
            throw sandboxes.translated(sandbox, e);
        }
    }
}
