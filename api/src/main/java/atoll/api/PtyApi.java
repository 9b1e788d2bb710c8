package atoll.api;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.SandboxId;
import atoll.core.execution.OutputReader;
import atoll.core.process.OutputChoice;
import atoll.core.process.ProcessRecord;
import atoll.core.process.ProcessRef;
import atoll.core.process.Processes;
import atoll.core.process.Program;
import atoll.core.process.SignalTarget;
import atoll.core.process.Signals;
import atoll.core.process.StartProcess;
import atoll.core.process.TerminalSize;
import atoll.core.process.Written;
import atoll.http.Exchange;
import atoll.http.Json;
import atoll.http.WebSocketHandler;
import atoll.http.WebSocketMessage;
import atoll.http.WebSocketSession;
import com.fasterxml.jackson.annotation.JsonUnwrapped;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * {@code /v1/sandboxes/{id}/pty}: a terminal over a WebSocket. It is a process like any other: any number of viewers may be attached, a socket that closes ends
 * nothing, and whoever comes back goes on at the offset where it was.
 */
final class PtyApi {
    private static final Logger LOG = LoggerFactory.getLogger(PtyApi.class);
    private static final int MOST_CHARACTERS = 10_000;
    /** A terminal that takes nothing for so long has stopped reading. */
    private static final Duration INPUT_LIMIT = Duration.ofSeconds(10);
    /** For the end to be on record once the last byte was read. */
    private static final Duration END_LIMIT = Duration.ofSeconds(30);

    private final Processes processes;

    PtyApi(Processes processes) {
        this.processes = processes;
    }

    record Started(String type, String processId, int pid, long offset) {}

    record Gap(String type, long offset, long bytes) {}

    record Exited(String type, @JsonUnwrapped ProcessViews.View process) {}

    /** Starts or finds the process before the upgrade, so that what is wrong with it is an ordinary error. */
    WebSocketHandler open(Exchange exchange, Caller caller) {
        SandboxId sandbox = SandboxId.parse(exchange.path("sandbox_id"));
        String given = exchange.query("process_id");
        long offset = exchange.query("offset", 0, 0, Long.MAX_VALUE);
        ProcessRecord process = given == null
                ? processes.start(caller, sandbox, terminal(exchange))
                : processes.get(caller, ProcessRef.parse(sandbox, given));
        return session -> new Viewer(session, caller, process, given == null ? 0 : offset).serve();
    }

    private static StartProcess terminal(Exchange exchange) {
        var size =
                new TerminalSize((int) exchange.query("cols", TerminalSize.DEFAULT.columns(), 1, MOST_CHARACTERS), (int)
                        exchange.query("rows", TerminalSize.DEFAULT.rows(), 1, MOST_CHARACTERS));
        Program program = Optional.ofNullable(exchange.query("command"))
                .<Program>map(Program.Command::new)
                .orElseGet(Program.Shell::new);
        return new StartProcess(
                program,
                Optional.ofNullable(exchange.query("cwd")).orElse(""),
                exchange.queriesBeginningWith("env."),
                Optional.ofNullable(exchange.query("user")).orElse(""),
                true,
                Optional.empty(),
                Optional.of(size),
                Map.of(),
                Optional.empty());
    }

    /** One socket at one process: the session's thread takes input, a thread of its own brings output. */
    private final class Viewer {
        private final WebSocketSession session;
        private final Caller caller;
        private final ProcessRecord process;
        private final ProcessRef ref;
        private final long offset;

        Viewer(WebSocketSession session, Caller caller, ProcessRecord process, long offset) {
            this.session = session;
            this.caller = caller;
            this.process = process;
            this.ref = ProcessRef.of(process.id());
            this.offset = offset;
        }

        void serve() throws IOException, InterruptedException {
            OutputChoice choice = process.terminal().isPresent() ? OutputChoice.STDOUT : OutputChoice.COMBINED;
            OutputReader output = processes.read(caller, ref, choice, offset, true);
            Thread outwards = Thread.ofVirtual().name("pty-" + process.id()).start(() -> outwards(output));
            try {
                Optional<WebSocketMessage> message = session.receive();
                while (message.isPresent()) {
                    take(message.get());
                    message = session.receive();
                }
            } finally {
                output.close();
                outwards.interrupt();
                outwards.join();
            }
        }

        private void take(WebSocketMessage message) throws InterruptedException {
            try {
                switch (message) {
                    case WebSocketMessage.Binary(ByteBuffer bytes) -> write(bytes);
                    case WebSocketMessage.Text(String text) -> command(SocketMessage.parse(text));
                }
            } catch (AtollException e) {
                // What is typed when the program has just ended goes nowhere; that it has ended is told by the other
                // thread.
                if (e.code() != ErrorCode.CONFLICT || processes.get(caller, ref).running()) {
                    throw e;
                }
            }
        }

        private void write(ByteBuffer bytes) throws InterruptedException {
            Written written = processes.write(caller, ref, OptionalLong.empty(), bytes, false, INPUT_LIMIT);
            if (!written.complete()) {
                throw new AtollException(
                        ErrorCode.CONFLICT,
                        "the program has read no input for %d s".formatted(INPUT_LIMIT.toSeconds()),
                        "What was typed last is lost from byte %d on.".formatted(written.offset()),
                        "Attach again; interrupt the program.");
            }
        }

        private void command(SocketMessage message) {
            switch (message.type()) {
                case "resize" ->
                    processes.resize(
                            caller,
                            ref,
                            new TerminalSize(
                                    message.number("cols", 1, MOST_CHARACTERS),
                                    message.number("rows", 1, MOST_CHARACTERS)));
                case "signal" -> {
                    int signal = Signals.parse(message.text("signal"));
                    processes.signal(
                            caller, ref, signal, signal == Signals.KILL ? SignalTarget.TREE : SignalTarget.GROUP);
                }
                default -> throw message.unknown("resize or signal");
            }
        }

        private void outwards(OutputReader output) {
            try {
                session.sendText(Json.text(new Started("started", process.id().toString(), process.pid(), offset)));
                Optional<OutputReader.Piece> piece = output.next();
                while (piece.isPresent()) {
                    OutputReader.Piece next = piece.get();
                    if (next.gapBytes() > 0) {
                        session.sendText(Json.text(new Gap("gap", next.offset() - next.gapBytes(), next.gapBytes())));
                    }
                    session.sendBinary(next.data());
                    piece = output.next();
                }
                if (!Thread.interrupted()) {
                    ProcessRecord ended = processes.await(caller, ref, END_LIMIT);
                    session.sendText(Json.text(new Exited("exited", ProcessViews.View.of(ended))));
                    session.close(1000, "");
                }
            } catch (AtollException e) {
                session.close(4000 + ErrorTable.status(e.code()), ErrorTable.code(e.code()) + ": " + e.message());
            } catch (IOException e) {
                // The viewer has gone or does not read; the terminal goes on.
                LOG.debug("{}: {}", process.id(), e.getMessage());
            } catch (InterruptedException _) {
                // The viewer has closed.
            }
        }
    }
}
