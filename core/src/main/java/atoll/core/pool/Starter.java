package atoll.core.pool;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.ProcessId;
import atoll.core.node.Node;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeProcess;
import atoll.core.node.NodeStream;
import atoll.core.node.ProcessSpec;
import atoll.core.port.Tunnel;
import atoll.core.template.StartCommand;
import atoll.core.template.Template;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Starts what a template has started in each of its boxes, and waits until that is ready. */
final class Starter {
    private static final long FIRST_PAUSE_MILLIS = 20;
    private static final long LONGEST_PAUSE_MILLIS = 500;
    private static final int SHOWN_BYTES = 2048;

    private final Node node;

    Starter(Node node) {
        this.node = node;
    }

    /** Does nothing for a template that starts nothing. */
    void start(BoxId box, Template template) throws InterruptedException {
        if (template.start().isEmpty()) {
            return;
        }
        StartCommand start = template.start().get();
        ProcessId id = ProcessId.random();
        NodeProcess started = run(box, id, template, start.command(), Optional.empty());
        long deadline = System.nanoTime() + start.ready().timeout().toNanos();
        long pause = FIRST_PAUSE_MILLIS;
        while (!isReady(box, template, start.ready().check())) {
            NodeProcess now = node.processes().get(box, id);
            boolean failed =
                    now.finish().isPresent() && !now.finish().get().exitCode().equals(OptionalInt.of(0));
            if (failed || System.nanoTime() - deadline > 0) {
                throw notReady(template, failed ? "it ended" + said(box, id) : "it was not ready in time");
            }
            Thread.sleep(pause);
            pause = Math.min(LONGEST_PAUSE_MILLIS, pause * 2);
        }
        assert started.id().equals(id);
    }

    private NodeProcess run(BoxId box, ProcessId id, Template template, String command, Optional<Duration> timeout) {
        AtollException missing = null;
        for (String shell : List.of("/bin/bash", "/bin/sh")) {
            try {
                return node.processes()
                        .start(
                                box,
                                new ProcessSpec(
                                        id,
                                        List.of(shell, "-c", command),
                                        "",
                                        template.env(),
                                        "",
                                        false,
                                        timeout,
                                        Optional.empty(),
                                        Map.of(Pools.START_LABEL, template.id())));
            } catch (AtollException e) {
                if (e.code() != ErrorCode.PROGRAM_NOT_FOUND) {
                    throw e;
                }
                missing = e;
            }
        }
        throw new AtollException(
                ErrorCode.SANDBOX_START_FAILED,
                "template " + template.id() + ": its start command needs a shell, and the image has none",
                missing == null ? "" : missing.message(),
                "Use an image with /bin/sh.");
    }

    private boolean isReady(BoxId box, Template template, StartCommand.Check check) throws InterruptedException {
        return switch (check) {
            case StartCommand.Check.Started _ -> true;
            case StartCommand.Check.Port(int port) ->
                node.ports(box).stream().anyMatch(listening -> listening.port() == port);
            case StartCommand.Check.Http(int port, String path) -> answers(box, port, path);
            case StartCommand.Check.Command(String command) -> succeeds(box, template, command);
        };
    }

    private boolean succeeds(BoxId box, Template template, String command) throws InterruptedException {
        ProcessId id = ProcessId.random();
        Duration limit = Duration.ofSeconds(10);
        NodeProcess tried = run(box, id, template, command, Optional.of(limit));
        assert tried.id().equals(id);
        try {
            NodeProcess ended =
                    node.processes().ended(box, id).get(limit.multipliedBy(2).toMillis(), TimeUnit.MILLISECONDS);
            return ended.finish()
                    .map(finish -> finish.exitCode().equals(OptionalInt.of(0)))
                    .orElse(false);
        } catch (TimeoutException | ExecutionException e) {
            return false;
        } finally {
            node.processes().forget(List.of(id), false);
        }
    }

    /** Whether an HTTP server answers there with a status from 200 to 399. */
    private boolean answers(BoxId box, int port, String path) throws InterruptedException {
        try (Tunnel tunnel = node.tunnel(box, port)) {
            String request = "GET " + path + " HTTP/1.1\r\nHost: localhost:" + port + "\r\nConnection: close\r\n\r\n";
            tunnel.send(ByteBuffer.wrap(request.getBytes(StandardCharsets.US_ASCII)));
            StringBuilder status = new StringBuilder();
            Optional<ByteBuffer> piece = tunnel.receive();
            while (piece.isPresent() && status.length() < 12) {
                status.append(StandardCharsets.US_ASCII.decode(piece.get()));
                if (status.length() < 12) {
                    piece = tunnel.receive();
                }
            }
            String[] words = status.toString().split("[ \r\n]", 3);
            return words.length > 1 && words[0].startsWith("HTTP/") && words[1].matches("[23]\\d\\d");
        } catch (AtollException e) {
            if (e.code() == ErrorCode.PORT_CLOSED || e.code() == ErrorCode.NODE_UNAVAILABLE) {
                return false;
            }
            throw e;
        }
    }

    private static AtollException notReady(Template template, String why) {
        return new AtollException(
                ErrorCode.SANDBOX_START_FAILED,
                "template " + template.id() + ": its start command did not get ready: " + why,
                "A sandbox of it is handed out once what it starts is ready.",
                "Try the command in a sandbox of a template without it, then correct start.");
    }

    /** What one printed that has ended. */
    private String said(BoxId box, ProcessId id) {
        StringBuilder said = new StringBuilder();
        try (NodeStream<NodeEvent> events = node.processes().attach(box, id, 0)) {
            Optional<NodeEvent> event = events.next();
            while (event.isPresent() && said.length() < SHOWN_BYTES) {
                if (event.get() instanceof NodeEvent.Output output) {
                    said.append(StandardCharsets.UTF_8.decode(output.data().duplicate()));
                }
                event = events.next();
            }
        } catch (AtollException e) {
            return "";
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        String text = said.toString().strip();
        return text.isEmpty() ? "" : "; it said: " + text;
    }
}
