package atoll.http;

import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Request;

/**
 * Reads request bodies whole, within a size and a time. The time is for the whole body: a client that sends one byte now and then does not hold a request open.
 * Bodies above 64 KiB share a budget, so that many large ones at once wait for each other instead of ending the server.
 */
final class RequestBody {
    private static final int SMALL = 64 << 10;
    private static final int BUDGET_UNIT = 64 << 10;
    /** How much of a refused body is still taken, so that the client gets to read the answer rather than a reset. */
    static final long DRAIN_BYTES = 64L << 20;

    private static final Duration SKIP_TIME = Duration.ofSeconds(1);
    static final Duration DRAIN_TIME = Duration.ofSeconds(5);

    private final long maxBytes;
    private final long timeoutNanos;
    private final Semaphore budget;

    RequestBody(HttpServerConfig config) {
        this.maxBytes = config.maxBodyBytes();
        this.timeoutNanos = config.bodyTimeout().toNanos();
        this.budget = new Semaphore(Math.toIntExact(config.maxBodiesInFlightBytes() / BUDGET_UNIT) + 1, true);
    }

    /** Takes what the body holds. */
    @FunctionalInterface
    interface Taker<T> {
        T take(byte[] bytes, int length);
    }

    <T> T read(Request request, Taker<T> taker) throws IOException, InterruptedException {
        long deadline = System.nanoTime() + timeoutNanos;
        long announced = request.getLength();
        if (announced > maxBytes) {
            drain(request);
            throw tooLarge("the request body has %d bytes".formatted(announced));
        }
        byte[] bytes = new byte[announced < 0 ? 8 << 10 : (int) Math.min(announced, SMALL)];
        int length = 0;
        int permits = 0;
        try {
            while (true) {
                Content.Chunk chunk = next(request, deadline);
                try {
                    int size = chunk.remaining();
                    if (length + (long) size > maxBytes) {
                        drain(request);
                        throw tooLarge("the request body has more bytes than allowed");
                    }
                    if (length + size > bytes.length) {
                        int capacity =
                                (int) Math.clamp(announced, Math.max(length + size, bytes.length * 2L), maxBytes);
                        permits += acquire(capacity, permits, deadline);
                        bytes = Arrays.copyOf(bytes, capacity);
                    }
                    chunk.getByteBuffer().get(bytes, length, size);
                    length += size;
                } finally {
                    chunk.release();
                }
                if (chunk.isLast()) {
                    return taker.take(bytes, length);
                }
            }
        } finally {
            budget.release(permits);
        }
    }

    /** The body of any size, piece by piece. */
    BodyStream stream(Request request) {
        return new BodyStream(request, timeoutNanos);
    }

    /**
     * Takes a small body that the answer does not depend on, and says whether it did. HTTP/2 clients take it for an error when the stream ends while they
     * are still sending (Java's HttpClient: "RST_STREAM received").
     */
    boolean skipSmall(Request request) {
        long announced = request.getLength();
        if (announced <= 0 || announced > SMALL) {
            return false;
        }
        long deadline = System.nanoTime() + SKIP_TIME.toNanos();
        try {
            boolean last = false;
            while (!last) {
                Content.Chunk chunk = next(request, deadline);
                last = chunk.isLast();
                chunk.release();
            }
        } catch (IOException | HttpFailure _) {
            // The answer is the same.
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
        return true;
    }

    private int acquire(int capacity, int held, long deadline) throws InterruptedException {
        int wanted = capacity <= SMALL ? 0 : capacity / BUDGET_UNIT - held;
        if (wanted <= 0) {
            return 0;
        }
        if (!budget.tryAcquire(wanted, deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
            throw new HttpFailure(new ErrorReply(
                    503,
                    "server_busy",
                    "too many large requests at once",
                    "",
                    "try again in a moment, or send smaller ones"));
        }
        return wanted;
    }

    private Content.Chunk next(Request request, long deadline) throws IOException, InterruptedException {
        while (true) {
            Content.Chunk chunk = request.read();
            if (chunk == null) {
                var ready = new Semaphore(0);
                request.demand(ready::release);
                if (!ready.tryAcquire(deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
                    throw tooSlow();
                }
                continue;
            }
            if (Content.Chunk.isFailure(chunk)) {
                throw new IOException("the client broke off its request", chunk.getFailure());
            }
            return chunk;
        }
    }

    private HttpFailure tooSlow() {
        return new HttpFailure(new ErrorReply(
                408,
                "request_timeout",
                "the request body did not arrive within %d s".formatted(TimeUnit.NANOSECONDS.toSeconds(timeoutNanos)),
                "",
                "send the whole body at once"));
    }

    private HttpFailure tooLarge(String message) {
        return new HttpFailure(new ErrorReply(
                413,
                "request_too_large",
                message,
                "the limit is %d bytes".formatted(maxBytes),
                "send less; put large data into a file of the sandbox"));
    }

    /**
     * Takes what the client still sends of a body that nobody wants, within bounds: one that is cut off while it sends may never read its answer.
     */
    void drain(Request request) throws InterruptedException {
        long deadline = System.nanoTime() + DRAIN_TIME.toNanos();
        long taken = 0;
        try {
            while (taken < DRAIN_BYTES) {
                Content.Chunk chunk = next(request, deadline);
                taken += chunk.remaining();
                boolean last = chunk.isLast();
                chunk.release();
                if (last) {
                    return;
                }
            }
        } catch (IOException | HttpFailure _) {
            // The answer is the same, whether the client still listens or not.
        }
    }
}
