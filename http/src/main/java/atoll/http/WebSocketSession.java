package atoll.http;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.thread.Scheduler;
import org.eclipse.jetty.websocket.core.CloseStatus;
import org.eclipse.jetty.websocket.core.CoreSession;
import org.eclipse.jetty.websocket.core.Frame;
import org.eclipse.jetty.websocket.core.FrameHandler;
import org.eclipse.jetty.websocket.core.OpCode;
import org.jspecify.annotations.Nullable;

/**
 * A WebSocket, used by blocking: {@link #receive} by one thread, sending by any. A sender waits until the connection took its message, so a slow reader slows the
 * writer; one who takes nothing for the write timeout is dropped. What is not received is held back in the client, but for one frame of at most 64 KiB.
 *
 * <p>Pings go out every 15 s, which keeps proxies from ending a silent connection and finds out whether the other side is there.
 */
public final class WebSocketSession {
    static final int FRAME = 64 << 10;
    static final int LARGEST_MESSAGE = 16 << 20;
    private static final long PING_NANOS = TimeUnit.SECONDS.toNanos(15);
    private static final long CLOSE_NANOS = TimeUnit.SECONDS.toNanos(5);
    /** Pings without an answer after which the other side is taken for gone. */
    private static final int MOST_UNANSWERED = 3;

    private static final int LONGEST_REASON = 123;

    private sealed interface Item {
        record Data(byte kind, boolean last, ByteBuffer bytes) implements Item {}

        /** The other side has closed, or the connection is gone. */
        record End() implements Item {}
    }

    private final CoreSession core;
    private final Scheduler scheduler;
    private final long writeTimeoutNanos;
    private final LinkedBlockingQueue<Item> items = new LinkedBlockingQueue<>();
    private volatile boolean closed;
    private final AtomicBoolean demanded = new AtomicBoolean();
    private final AtomicInteger unanswered = new AtomicInteger();
    private volatile Scheduler.@Nullable Task ping;

    // Of the receiving thread.
    private byte kind;
    private long messageBytes;
    private final ByteArrayOutputStream text = new ByteArrayOutputStream();

    private WebSocketSession(CoreSession core, Scheduler scheduler, long writeTimeoutNanos) {
        this.core = core;
        this.scheduler = scheduler;
        this.writeTimeoutNanos = writeTimeoutNanos;
    }

    /** Waits for what the other side says next; empty once it has closed or is gone. */
    public Optional<WebSocketMessage> receive() throws IOException, InterruptedException {
        while (true) {
            Item item = items.take();
            switch (item) {
                case Item.End end -> {
                    // For the next call, should there be one.
                    items.add(end);
                    return Optional.empty();
                }
                case Item.Data data -> {
                    // One frame is fetched ahead, so that a close is seen while this one is worked on.
                    demand();
                    Optional<WebSocketMessage> message = message(data);
                    if (message.isPresent()) {
                        return message;
                    }
                }
            }
        }
    }

    private Optional<WebSocketMessage> message(Item.Data data) throws IOException {
        if (data.kind != OpCode.CONTINUATION) {
            kind = data.kind;
            messageBytes = 0;
        }
        messageBytes += data.bytes.remaining();
        if (messageBytes > LARGEST_MESSAGE) {
            close(
                    CloseStatus.MESSAGE_TOO_LARGE,
                    "a message has more than %d bytes: send several".formatted(LARGEST_MESSAGE));
            throw new ClientGoneException("it sent a message that is too large");
        }
        if (kind == OpCode.BINARY) {
            return !data.bytes.hasRemaining() ? Optional.empty() : Optional.of(new WebSocketMessage.Binary(data.bytes));
        }
        byte[] part = new byte[data.bytes.remaining()];
        data.bytes.get(part);
        text.writeBytes(part);
        if (!data.last) {
            return Optional.empty();
        }
        byte[] whole = text.toByteArray();
        text.reset();
        try {
            return Optional.of(new WebSocketMessage.Text(StandardCharsets.UTF_8
                    .newDecoder()
                    .decode(ByteBuffer.wrap(whole))
                    .toString()));
        } catch (CharacterCodingException e) {
            close(CloseStatus.BAD_PAYLOAD, "a text message is not valid UTF-8");
            throw new ClientGoneException(e);
        }
    }

    public void sendText(String message) throws IOException, InterruptedException {
        send(new Frame(OpCode.TEXT, message));
    }

    /** The buffer is free again on return. */
    public void sendBinary(ByteBuffer bytes) throws IOException, InterruptedException {
        ByteBuffer rest = bytes.duplicate();
        // The write timeout is for a piece of this size, so a whole larger message may take longer.
        boolean first = true;
        do {
            int size = Math.min(rest.remaining(), FRAME);
            ByteBuffer piece = rest.slice(rest.position(), size);
            rest.position(rest.position() + size);
            send(new Frame(OpCode.BINARY, piece));
            first = false;
        } while (first || rest.hasRemaining());
    }

    private void send(Frame frame) throws IOException, InterruptedException {
        var written = new Written();
        core.sendFrame(frame, written, false);
        try {
            written.await(writeTimeoutNanos);
        } catch (SlowReaderException e) {
            // What is still to be written will never be read.
            core.abort();
            throw e;
        }
    }

    /** Ends the session from here; what was sent before arrives. Does nothing if it has ended. */
    public void close(int code, String reason) {
        if (closed) {
            return;
        }
        closed = true;
        core.close(code, shortened(reason), Callback.NOOP);
        // What still comes is thrown away, so that one who is sending gets to read the close.
        demand();
        // Who does not answer a close is cut off.
        scheduler.schedule(
                () -> {
                    if (!core.isClosed()) {
                        core.abort();
                    }
                },
                CLOSE_NANOS,
                TimeUnit.NANOSECONDS);
    }

    boolean isClosed() {
        return core.isClosed();
    }

    /** A close frame has room for 123 bytes. */
    private static String shortened(String reason) {
        if (reason.getBytes(StandardCharsets.UTF_8).length <= LONGEST_REASON) {
            return reason;
        }
        int end = reason.offsetByCodePoints(0, Math.min(LONGEST_REASON / 4, reason.codePointCount(0, reason.length())));
        while (end < reason.length()) {
            int next = reason.offsetByCodePoints(end, 1);
            if (reason.substring(0, next).getBytes(StandardCharsets.UTF_8).length > LONGEST_REASON - 3) {
                break;
            }
            end = next;
        }
        return reason.substring(0, end) + "…";
    }

    private void demand() {
        if (!core.isClosed() && demanded.compareAndSet(false, true)) {
            core.demand();
        }
    }

    private void schedulePing() {
        ping = scheduler.schedule(this::ping, PING_NANOS, TimeUnit.NANOSECONDS);
    }

    private void ping() {
        if (core.isClosed() || !core.isOutputOpen()) {
            return;
        }
        // An answer can only be seen while we are ready to read.
        if (demanded.get() && unanswered.get() >= MOST_UNANSWERED) {
            core.abort();
            return;
        }
        unanswered.incrementAndGet();
        core.sendFrame(new Frame(OpCode.PING), Callback.NOOP, false);
        schedulePing();
    }

    /** Jetty's side of a session. */
    static final class Frames implements FrameHandler {
        /** Is told of sessions that open and end. */
        interface Listener {
            void opened(WebSocketSession session);

            void ended(WebSocketSession session);
        }

        private final Scheduler scheduler;
        private final long writeTimeoutNanos;
        private final Listener listener;
        private @Nullable WebSocketSession session;

        Frames(Scheduler scheduler, long writeTimeoutNanos, Listener listener) {
            this.scheduler = scheduler;
            this.writeTimeoutNanos = writeTimeoutNanos;
            this.listener = listener;
        }

        @Override
        public void onOpen(CoreSession core, Callback callback) {
            var opened = new WebSocketSession(core, scheduler, writeTimeoutNanos);
            session = opened;
            callback.succeeded();
            opened.schedulePing();
            opened.demand();
            listener.opened(opened);
        }

        @Override
        public void onFrame(Frame frame, Callback callback) {
            WebSocketSession receiver = opened();
            receiver.demanded.set(false);
            receiver.unanswered.set(0);
            switch (frame.getOpCode()) {
                // The next frame is asked for once the answer is out: who floods us with pings and reads nothing is
                // held
                // back.
                case OpCode.PING -> {
                    var pong = new Frame(OpCode.PONG, copy(frame));
                    receiver.core.sendFrame(pong, Callback.from(receiver::demand, _ -> {}), false);
                }
                case OpCode.PONG -> receiver.demand();
                case OpCode.CLOSE -> receiver.items.add(new Item.End());
                default -> {
                    if (receiver.closed) {
                        receiver.demand();
                    } else {
                        receiver.items.add(new Item.Data(frame.getOpCode(), frame.isFin(), copy(frame)));
                    }
                }
            }
            callback.succeeded();
        }

        private static ByteBuffer copy(Frame frame) {
            ByteBuffer payload = frame.getPayload();
            byte[] bytes = new byte[payload == null ? 0 : payload.remaining()];
            if (payload != null) {
                payload.get(bytes);
            }
            return ByteBuffer.wrap(bytes);
        }

        @Override
        public void onError(Throwable cause, Callback callback) {
            // onClosed follows; a connection that breaks is no event worth a line in the log.
            callback.succeeded();
        }

        @Override
        public void onClosed(CloseStatus status, Callback callback) {
            WebSocketSession over = opened();
            over.closed = true;
            Scheduler.Task task = over.ping;
            if (task != null) {
                boolean cancelled = task.cancel();
                assert cancelled || !cancelled;
            }
            over.items.add(new Item.End());
            listener.ended(over);
            callback.succeeded();
        }

        private WebSocketSession opened() {
            WebSocketSession there = session;
            if (there == null) {
                throw new IllegalStateException("no frame comes before onOpen");
            }
            return there;
        }
    }
}
