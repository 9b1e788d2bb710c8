package atoll.core.port;

import atoll.core.Caller;
import atoll.core.SandboxId;
import java.util.List;

/** What listens in a running sandbox, and connections to it. */
public interface Ports {
    List<ListeningPort> list(Caller caller, SandboxId id);

    /** One TCP connection to a port, also one that listens on 127.0.0.1 only. {@code PORT_CLOSED} where nothing listens. */
    Tunnel tunnel(Caller caller, SandboxId id, int port);
}
