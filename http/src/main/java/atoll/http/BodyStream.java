package atoll.http;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Request;
import org.jspecify.annotations.Nullable;

/**
 * A request body of any size, taken piece by piece. What is not taken is held back in the client: memory stays the same however large the body is.
 *
 * <p>There is no limit on the whole time, but on standing still: a client that sends less than 64 KiB within the body timeout, counted while we wait for it, is
 * refused. So one that sends a byte now and then does not hold a request open, and a large upload over a slow line is not cut.
 */
public final class BodyStream {
    static final int PIECE = 256 << 10;
    private static final int PROGRESS = 64 << 10;

    private final Request request;
    private final long timeoutNanos;
    private Content.@Nullable Chunk leftOver;
    private boolean begun;
    private boolean ended;
    private boolean failed;
    private long patienceNanos;
    private int arrived;

    BodyStream(Request request, long timeoutNanos) {
        this.request = request;
        this.timeoutNanos = timeoutNanos;
        this.patienceNanos = timeoutNanos;
    }

    /** How long the body will be, where the client says so. */
    public OptionalLong announcedLength() {
        long length = request.getLength();
        return length < 0 ? OptionalLong.empty() : OptionalLong.of(length);
    }

    /**
     * Waits for the next bytes: what is there, at most 256 KiB. The buffer belongs to the caller. Empty at the end.
     *
     * @throws ClientGoneException when the client broke its request off
     */
    public Optional<ByteBuffer> next() throws IOException, InterruptedException {
        begun = true;
        var chunks = new ArrayList<Content.Chunk>();
        try {
            int size = gather(chunks);
            return size == 0 ? Optional.empty() : Optional.of(joined(chunks, size));
        } finally {
            chunks.forEach(Content.Chunk::release);
        }
    }

    /** Whether everything has been taken. */
    boolean ended() {
        return ended || failed;
    }

    /** Whether the client was asked for it. */
    boolean begun() {
        return begun;
    }

    private int gather(List<Content.Chunk> chunks) throws IOException, InterruptedException {
        int size = 0;
        while (size < PIECE && (!ended || leftOver != null)) {
            Content.Chunk chunk = size == 0 ? awaited() : available();
            if (chunk == null) {
                break;
            }
            chunks.add(chunk);
            ended |= chunk.isLast();
            size += Math.min(chunk.remaining(), PIECE - size);
        }
        progress(size);
        return size;
    }

    /** One copy of every byte, since the network's buffers are wanted back and the taker sends on in its own time. */
    private ByteBuffer joined(List<Content.Chunk> chunks, int size) {
        byte[] bytes = new byte[size];
        int at = 0;
        for (Content.Chunk chunk : chunks) {
            int part = Math.min(chunk.remaining(), size - at);
            chunk.getByteBuffer().get(bytes, at, part);
            at += part;
            if (chunk.hasRemaining()) {
                chunk.retain();
                leftOver = chunk;
            }
        }
        return ByteBuffer.wrap(bytes);
    }

    private Content.Chunk awaited() throws IOException, InterruptedException {
        while (true) {
            Content.Chunk chunk = available();
            if (chunk != null) {
                return chunk;
            }
            var ready = new Semaphore(0);
            request.demand(ready::release);
            long began = System.nanoTime();
            if (!ready.tryAcquire(patienceNanos, TimeUnit.NANOSECONDS)) {
                failed = true;
                throw tooSlow();
            }
            patienceNanos -= System.nanoTime() - began;
        }
    }

    private Content.@Nullable Chunk available() throws IOException {
        Content.Chunk held = leftOver;
        if (held != null) {
            leftOver = null;
            return held;
        }
        Content.Chunk chunk = request.read();
        if (chunk != null && Content.Chunk.isFailure(chunk)) {
            failed = true;
            throw new ClientGoneException("the client broke off its request: " + chunk.getFailure());
        }
        return chunk;
    }

    private void progress(int bytes) {
        arrived += bytes;
        if (arrived >= PROGRESS) {
            arrived = 0;
            patienceNanos = timeoutNanos;
        }
    }

    private HttpFailure tooSlow() {
        return new HttpFailure(new ErrorReply(
                408,
                "request_timeout",
                "less than %d bytes of the request body arrived within %d s"
                        .formatted(PROGRESS, TimeUnit.NANOSECONDS.toSeconds(timeoutNanos)),
                "",
                "send the body without long pauses"));
    }

    /** Takes what still comes, within bounds, so that the client gets to read an answer that came early rather than a reset. */
    void drain(long mostBytes, long timeNanos) throws InterruptedException {
        long deadline = System.nanoTime() + timeNanos;
        long taken = 0;
        try {
            while (!ended() && taken < mostBytes && System.nanoTime() < deadline) {
                patienceNanos = Math.max(0, deadline - System.nanoTime());
                Optional<ByteBuffer> piece = next();
                if (piece.isPresent()) {
                    taken += piece.get().remaining();
                }
            }
        } catch (IOException | HttpFailure _) {
            // The answer is the same, whether the client still listens or not.
        }
    }

    /** Gives back what was not taken. */
    void release() {
        Content.Chunk held = leftOver;
        if (held != null) {
            leftOver = null;
            held.release();
        }
    }
}
