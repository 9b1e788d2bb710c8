package atoll.api;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.core.port.ListeningPort;
import atoll.core.port.Ports;
import atoll.core.port.Tunnel;
import atoll.http.Exchange;
import atoll.http.WebSocketHandler;
import atoll.http.WebSocketMessage;
import atoll.http.WebSocketSession;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Optional;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** {@code /v1/sandboxes/{id}/ports}: what listens inside, and TCP connections to it over WebSockets. */
final class PortsApi {
    private static final Logger LOG = LoggerFactory.getLogger(PortsApi.class);
    private static final String END = "{\"type\":\"end\"}";

    private final Ports ports;

    PortsApi(Ports ports) {
        this.ports = ports;
    }

    record PortView(int port, String address, Optional<Integer> pid, String command, Optional<String> processId) {
        static PortView of(ListeningPort port) {
            return new PortView(
                    port.port(),
                    port.address(),
                    port.pid() == 0 ? Optional.empty() : Optional.of(port.pid()),
                    port.command(),
                    port.processId());
        }
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<PortView> items =
                ports.list(caller, id(exchange)).stream().map(PortView::of).toList();
        exchange.json(200, new Wire.Items<>(items, Optional.empty()));
    }

    /** Connects before the upgrade, so that a closed port is an ordinary error. */
    WebSocketHandler tunnel(Exchange exchange, Caller caller) throws InterruptedException {
        Tunnel tunnel = ports.tunnel(caller, id(exchange), port(exchange.path("port")));
        return session -> {
            try (tunnel) {
                carry(session, tunnel);
            }
        };
    }

    private static SandboxId id(Exchange exchange) {
        return SandboxId.parse(exchange.path("sandbox_id"));
    }

    private static int port(String text) {
        try {
            return Integer.parseInt(text);
        } catch (NumberFormatException _) {
            throw AtollException.invalid(
                    "port: \"%s\" (expected: a number)".formatted(text.length() > 32 ? text.substring(0, 32) : text),
                    "Name a TCP port of the sandbox.");
        }
    }

    /** The session's thread carries inwards, one of its own outwards. Who is done first ends its half only. */
    private static void carry(WebSocketSession session, Tunnel tunnel) throws IOException, InterruptedException {
        Thread outwards = Thread.ofVirtual().name("tunnel").start(() -> outwards(session, tunnel));
        try {
            Optional<WebSocketMessage> message = session.receive();
            while (message.isPresent()) {
                switch (message.get()) {
                    case WebSocketMessage.Binary(ByteBuffer bytes) -> tunnel.send(bytes);
                    case WebSocketMessage.Text(String text) -> {
                        requireEnd(text);
                        tunnel.end();
                    }
                }
                message = session.receive();
            }
        } finally {
            outwards.interrupt();
            outwards.join();
            tunnel.close();
        }
    }

    private static void requireEnd(String text) {
        SocketMessage message = SocketMessage.parse(text);
        if (!message.type().equals("end")) {
            throw message.unknown("end");
        }
    }

    private static void outwards(WebSocketSession session, Tunnel tunnel) {
        try {
            Optional<ByteBuffer> piece = tunnel.receive();
            while (piece.isPresent()) {
                session.sendBinary(piece.get());
                piece = tunnel.receive();
            }
            session.sendText(END);
        } catch (AtollException e) {
            session.close(4000 + ErrorTable.status(e.code()), ErrorTable.code(e.code()) + ": " + e.message());
        } catch (IOException e) {
            // The client has gone; the receiving thread notices too.
            LOG.debug("tunnel: {}", e.getMessage());
        } catch (InterruptedException _) {
            // The client has closed.
        }
    }
}
