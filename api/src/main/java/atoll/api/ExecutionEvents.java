package atoll.api;

import atoll.core.AtollException;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionUpdate;
import atoll.core.execution.StandardStream;
import atoll.http.Ahead;
import atoll.http.ErrorReply;
import atoll.http.EventStream;
import atoll.http.Exchange;
import java.io.IOException;
import java.time.Duration;
import java.util.Base64;
import java.util.EnumMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Writes an execution as server-sent events: start, output…, result…, gap…, and at last done or error. */
final class ExecutionEvents {
    private static final Logger LOG = LoggerFactory.getLogger(ExecutionEvents.class);
    /** Proxies end connections that are silent for longer, usually after 60 s. */
    static final Duration KEEP_ALIVE = Duration.ofSeconds(15);

    private static final byte[] START = EventStream.ascii("start");
    private static final byte[] OUTPUT = EventStream.ascii("output");
    private static final byte[] RESULT = EventStream.ascii("result");
    private static final byte[] GAP = EventStream.ascii("gap");
    private static final byte[] DONE = EventStream.ascii("done");
    static final byte[] ERROR = EventStream.ascii("error");
    private static final byte[] CLOSE = EventStream.ascii("\"}");

    private final EventStream events;
    private final Map<StandardStream, Output> outputs = new EnumMap<>(StandardStream.class);

    private ExecutionEvents(EventStream events) {
        this.events = events;
        for (StandardStream stream : StandardStream.values()) {
            outputs.put(stream, new Output(events, stream));
        }
    }

    /** Writes all of it, to the end of the execution or of the reader; closes the handle. */
    static void write(Exchange exchange, ExecutionHandle handle) throws IOException, InterruptedException {
        EventStream events = exchange.events();
        var writer = new ExecutionEvents(events);
        try (var feed = new Ahead<>(handle.executionId().toString(), handle::next, handle::close)) {
            events.event(
                    START,
                    new Wire.Start(
                            handle.executionId().toString(),
                            handle.sandboxId().toString(),
                            handle.contextId().toString()));
            events.flush();
            writer.writeAll(feed);
        } catch (AtollException e) {
            if (ErrorTable.status(e.code()) == 500) {
                LOG.error("{} {} failed", exchange.requestId(), handle.executionId(), e);
            }
            events.event(ERROR, ErrorEvent.of(ErrorTable.reply(e)));
        }
        events.finish();
    }

    private void writeAll(Ahead<ExecutionUpdate> feed) throws IOException, InterruptedException {
        while (true) {
            ExecutionUpdate update = feed.poll();
            if (update == null) {
                events.flush();
                update = feed.poll(KEEP_ALIVE);
            }
            if (update == null) {
                events.keepAlive();
            } else if (write(update)) {
                return;
            }
        }
    }

    /** Whether it was the last one. */
    private boolean write(ExecutionUpdate update) throws IOException, InterruptedException {
        switch (update) {
            case ExecutionUpdate.Output output ->
                output(output.stream()).pieces.chunk(output.data(), output(output.stream()));
            case ExecutionUpdate.Result result -> events.event(RESULT, Wire.Result.of(result.result()));
            case ExecutionUpdate.Gap gap -> {
                output(gap.stream()).end();
                events.event(GAP, new Wire.Gap(gap.stream().text(), gap.offset(), gap.bytes()));
            }
            case ExecutionUpdate.Finished finished -> {
                for (Output output : outputs.values()) {
                    output.end();
                }
                events.event(DONE, Wire.Outcome.of(finished.outcome()));
                return true;
            }
        }
        return false;
    }

    private Output output(StandardStream stream) {
        @Nullable Output output = outputs.get(stream);
        if (output == null) {
            throw new IllegalStateException("every stream has its output, not " + stream);
        }
        return output;
    }

    /** One stream's bytes as output events. */
    private static final class Output implements Utf8Pieces.Sink {
        final Utf8Pieces pieces = new Utf8Pieces();
        private final EventStream events;
        private final byte[] textStart;
        private final byte[] binaryStart;

        Output(EventStream events, StandardStream stream) {
            this.events = events;
            this.textStart = EventStream.ascii("{\"stream\":\"" + stream.text() + "\",\"text\":\"");
            this.binaryStart = EventStream.ascii("{\"stream\":\"" + stream.text() + "\",\"base64\":\"");
        }

        @Override
        public void text(byte[] utf8, int from, int to) throws IOException, InterruptedException {
            events.begin(OUTPUT);
            events.raw(textStart);
            events.text(utf8, from, to);
            events.raw(CLOSE);
            events.end();
        }

        @Override
        public void binary(byte[] bytes, int from, int to) throws IOException, InterruptedException {
            events.begin(OUTPUT);
            events.raw(binaryStart);
            byte[] piece = new byte[to - from];
            System.arraycopy(bytes, from, piece, 0, piece.length);
            events.raw(Base64.getEncoder().encode(piece));
            events.raw(CLOSE);
            events.end();
        }

        void end() throws IOException, InterruptedException {
            pieces.end(this);
        }
    }

    /** Why a stream ends before its end. */
    record ErrorEvent(String code, String message, String cause, String remediation) {
        static ErrorEvent of(ErrorReply reply) {
            return new ErrorEvent(reply.code(), reply.message(), reply.cause(), reply.remediation());
        }
    }
}
