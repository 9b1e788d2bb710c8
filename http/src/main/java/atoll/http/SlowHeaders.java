package atoll.http;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.eclipse.jetty.http.HttpParser;
import org.eclipse.jetty.io.Connection;
import org.eclipse.jetty.server.internal.HttpConnection;
import org.eclipse.jetty.util.component.AbstractLifeCycle;
import org.eclipse.jetty.util.thread.Scheduler;

/**
 * Closes HTTP/1 connections whose request line and headers take too long. The idle timeout does not see a client that sends one byte now and
 * then. A sweep looks at every connection; the parser's state is read without a lock, so one may be judged one sweep late, never too early.
 */
final class SlowHeaders extends AbstractLifeCycle implements Connection.Listener {
    private static final long NOT_READING = Long.MIN_VALUE;

    private final Map<HttpConnection, Long> readingSince = new ConcurrentHashMap<>();
    private final Scheduler scheduler;
    private final long limitNanos;

    SlowHeaders(Scheduler scheduler, long limitNanos) {
        this.scheduler = scheduler;
        this.limitNanos = limitNanos;
    }

    @Override
    public void onOpened(Connection connection) {
        if (connection instanceof HttpConnection http) {
            readingSince.put(http, NOT_READING);
        }
    }

    @Override
    public void onClosed(Connection connection) {
        if (connection instanceof HttpConnection http) {
            readingSince.remove(http);
        }
    }

    @Override
    protected void doStart() {
        scheduleNext();
    }

    private void scheduleNext() {
        scheduler.schedule(this::sweep, Math.max(1, limitNanos / 4), TimeUnit.NANOSECONDS);
    }

    private void sweep() {
        if (!isRunning() && !isStarting()) {
            return;
        }
        long now = System.nanoTime();
        readingSince.replaceAll((connection, since) -> {
            if (!isReadingHeaders(connection.getParser())) {
                return NOT_READING;
            }
            if (since == NOT_READING) {
                return now;
            }
            if (now - since > limitNanos) {
                connection.getEndPoint().close(new TimeoutException("the request's headers did not arrive in time"));
            }
            return since;
        });
        scheduleNext();
    }

    private static boolean isReadingHeaders(HttpParser parser) {
        return parser.inHeaderState() && !parser.isStart();
    }
}
