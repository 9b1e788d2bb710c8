package atoll.http;

import java.time.Instant;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.RequestLog;
import org.eclipse.jetty.server.Response;

/**
 * One line per request, written by a thread of its own: a request only puts a record into a bounded queue, and when that is full the line is lost and
 * counted rather than the request delayed. Never logs a body, a query or a header.
 */
public final class AccessLog implements RequestLog, AutoCloseable {
    private static final int CAPACITY = 8192;

    private record Entry(
            long atMillis,
            String method,
            String path,
            int status,
            long bytes,
            long micros,
            String requestId,
            String from) {}

    private final ArrayBlockingQueue<Entry> queue = new ArrayBlockingQueue<>(CAPACITY);
    private final AtomicLong lost = new AtomicLong();
    private final Consumer<String> lines;
    private final Thread writer;
    private volatile boolean closing;

    public AccessLog(Consumer<String> lines) {
        this.lines = lines;
        this.writer = Thread.ofPlatform().name("access-log").daemon().start(this::drain);
    }

    @Override
    public void log(Request request, Response response) {
        String requestId = response.getHeaders().get(HttpServer.REQUEST_ID);
        var entry = new Entry(
                Request.getTimeStamp(request),
                request.getMethod(),
                String.valueOf(request.getHttpURI().getPath()),
                response.getStatus(),
                Response.getContentBytesWritten(response),
                (System.nanoTime() - request.getBeginNanoTime()) / 1000,
                requestId == null ? "-" : requestId,
                String.valueOf(Request.getRemoteAddr(request)));
        if (!queue.offer(entry)) {
            lost.incrementAndGet();
        }
    }

    private void drain() {
        try {
            while (true) {
                write(queue.take());
            }
        } catch (InterruptedException _) {
            Entry rest;
            while ((rest = queue.poll()) != null) {
                write(rest);
            }
        }
    }

    private void write(Entry entry) {
        long missing = lost.getAndSet(0);
        if (missing > 0) {
            lines.accept("%d lines were lost: requests came faster than they could be logged".formatted(missing));
        }
        lines.accept("%s %s %s %s %d %dB %d.%03dms %s"
                .formatted(
                        Instant.ofEpochMilli(entry.atMillis),
                        entry.from,
                        entry.method,
                        entry.path.replaceAll("\\p{Cntrl}", "?"),
                        entry.status,
                        entry.bytes,
                        entry.micros / 1000,
                        entry.micros % 1000,
                        entry.requestId));
    }

    @Override
    public void close() {
        if (closing) {
            return;
        }
        closing = true;
        writer.interrupt();
        try {
            writer.join(2_000);
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }
}
