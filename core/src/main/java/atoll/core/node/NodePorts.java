package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.port.ListeningPort;
import atoll.core.port.Tunnel;
import java.util.List;

/** TCP ports inside boxes. */
public interface NodePorts {
    List<ListeningPort> ports(BoxId box);

    /** Returns when it is connected; {@code PORT_CLOSED} where nothing listens. */
    Tunnel tunnel(BoxId box, int port);
}
