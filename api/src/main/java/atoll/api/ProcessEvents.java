package atoll.api;

import atoll.core.AtollException;
import atoll.core.execution.StandardStream;
import atoll.core.process.ProcessFeed;
import atoll.core.process.ProcessRecord;
import atoll.core.process.ProcessUpdate;
import atoll.http.Ahead;
import atoll.http.EventStream;
import atoll.http.Exchange;
import java.io.IOException;
import java.time.Instant;
import java.util.Arrays;
import java.util.Base64;
import java.util.EnumMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes a process as server-sent events: started, stdout and stderr, gap, and at last exited, or error.
 *
 * <p>The id of an event is the number of the node's event that it ends, so a reader that comes again with it goes on behind it. Text is
 * cut between characters; where the beginning of one has come and its rest has not, the id carries it along ({@code 7.f09f.} for two
 * bytes of stdout), so that nothing is lost or doubled then either.
 */
final class ProcessEvents {
    private static final Logger LOG = LoggerFactory.getLogger(ProcessEvents.class);
    private static final Pattern ID =
            Pattern.compile("([0-9]{1,18})(?:\\.((?:[0-9a-f]{2}){0,3})\\.((?:[0-9a-f]{2}){0,3}))?");

    private static final byte[] STARTED = EventStream.ascii("started");
    private static final byte[] GAP = EventStream.ascii("gap");
    private static final byte[] EXITED = EventStream.ascii("exited");
    private static final byte[] CLOSE = EventStream.ascii("\"}");

    /** Where a reader goes on: after which event, with which bytes of each stream held back, in hex. */
    record After(long seq, String stdout, String stderr) {
        static final After NOTHING = new After(0, "", "");

        /** From the header or the query, as an id of an event; nothing if there is neither. */
        static After of(Exchange exchange) {
            String id = exchange.header("Last-Event-ID");
            id = id == null || id.isEmpty() ? exchange.query("after") : id;
            if (id == null || id.isEmpty()) {
                return NOTHING;
            }
            Matcher parts = ID.matcher(id);
            if (!parts.matches()) {
                throw AtollException.invalid(
                        "after: \"%s\" (expected: the id of an event)"
                                .formatted(id.length() > 64 ? id.substring(0, 64) + "…" : id),
                        "Send the id of the last event that came, or leave it out for all.");
            }
            String stdout = parts.group(2);
            String stderr = parts.group(3);
            return new After(
                    Long.parseLong(parts.group(1)), stdout == null ? "" : stdout, stderr == null ? "" : stderr);
        }
    }

    private final EventStream events;
    private final String process;
    private final Map<StandardStream, Output> outputs = new EnumMap<>(StandardStream.class);

    private ProcessEvents(EventStream events, String process, After after) {
        this.events = events;
        this.process = process;
        for (StandardStream stream : StandardStream.values()) {
            outputs.put(stream, new Output(stream));
        }
        output(StandardStream.STDOUT).pieces.hold(HexFormat.of().parseHex(after.stdout()));
        output(StandardStream.STDERR).pieces.hold(HexFormat.of().parseHex(after.stderr()));
    }

    /** Writes all of it, to the end of the process or of the reader; closes the feed. */
    static void write(Exchange exchange, ProcessFeed source, After after) throws IOException, InterruptedException {
        EventStream events = exchange.events();
        var writer = new ProcessEvents(events, source.process().id().toString(), after);
        try (var feed = new Ahead<>(source.process().id().toString(), source::next, source::close)) {
            // The reader learns that the request was taken before anything is printed.
            events.keepAlive();
            writer.writeAll(feed);
        } catch (AtollException e) {
            if (ErrorTable.status(e.code()) == 500) {
                LOG.error("{} {} failed", exchange.requestId(), source.process().id(), e);
            }
            events.event(ExecutionEvents.ERROR, ExecutionEvents.ErrorEvent.of(ErrorTable.reply(e)));
        }
        events.finish();
    }

    private void writeAll(Ahead<ProcessUpdate> feed) throws IOException, InterruptedException {
        while (true) {
            ProcessUpdate update = feed.poll();
            if (update == null) {
                events.flush();
                update = feed.poll(ExecutionEvents.KEEP_ALIVE);
            }
            if (update == null) {
                events.keepAlive();
            } else if (write(update)) {
                return;
            }
        }
    }

    /** Whether it was the last one. */
    private boolean write(ProcessUpdate update) throws IOException, InterruptedException {
        switch (update) {
            case ProcessUpdate.Started started -> {
                id(started.seq());
                events.event(STARTED, new Started(process, started.pid(), started.at()));
            }
            case ProcessUpdate.Output output -> output(output.stream()).write(output);
            case ProcessUpdate.Gap gap -> {
                output(gap.stream()).end();
                id(gap.seq());
                events.event(GAP, new Wire.Gap(gap.stream().text(), gap.offset(), gap.bytes()));
            }
            case ProcessUpdate.Ended ended -> {
                for (Output output : outputs.values()) {
                    output.end();
                }
                id(ended.seq());
                ProcessRecord process = ended.process();
                events.event(EXITED, ProcessViews.View.of(process));
                return true;
            }
        }
        return false;
    }

    record Started(String processId, int pid, Instant startedAt) {}

    private void id(long seq) throws IOException, InterruptedException {
        byte[] stdout = output(StandardStream.STDOUT).pieces.held();
        byte[] stderr = output(StandardStream.STDERR).pieces.held();
        String held = stdout.length + stderr.length == 0
                ? ""
                : "." + HexFormat.of().formatHex(stdout) + "." + HexFormat.of().formatHex(stderr);
        events.raw(EventStream.ascii("id: " + seq + held + "\n"));
    }

    private Output output(StandardStream stream) {
        @Nullable Output output = outputs.get(stream);
        if (output == null) {
            throw new IllegalStateException("every stream has its output, not " + stream);
        }
        return output;
    }

    /** One stream's bytes as events. Each piece waits for the next, since only the last one of an update carries its id. */
    private final class Output implements Utf8Pieces.Sink {
        final Utf8Pieces pieces = new Utf8Pieces();
        private final byte[] name;
        private long offset;
        private byte @Nullable [] waiting;
        private boolean waitingIsText;

        Output(StandardStream stream) {
            this.name = EventStream.ascii(stream.text());
        }

        void write(ProcessUpdate.Output output) throws IOException, InterruptedException {
            offset = output.offset() - pieces.held().length;
            pieces.chunk(output.data(), this);
            if (waiting != null) {
                id(output.seq());
                writeWaiting();
            }
        }

        @Override
        public void text(byte[] utf8, int from, int to) throws IOException, InterruptedException {
            writeWaiting();
            waiting = Arrays.copyOfRange(utf8, from, to);
            waitingIsText = true;
        }

        @Override
        public void binary(byte[] bytes, int from, int to) throws IOException, InterruptedException {
            writeWaiting();
            waiting = Arrays.copyOfRange(bytes, from, to);
            waitingIsText = false;
        }

        private void writeWaiting() throws IOException, InterruptedException {
            byte[] piece = waiting;
            if (piece == null) {
                return;
            }
            waiting = null;
            events.begin(name);
            events.raw(
                    EventStream.ascii("{\"offset\":" + offset + (waitingIsText ? ",\"text\":\"" : ",\"base64\":\"")));
            if (waitingIsText) {
                events.text(piece, 0, piece.length);
            } else {
                events.raw(Base64.getEncoder().encode(piece));
            }
            events.raw(CLOSE);
            events.end();
            offset += piece.length;
        }

        void end() throws IOException, InterruptedException {
            pieces.end(this);
            writeWaiting();
        }
    }
}
