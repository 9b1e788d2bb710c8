package atoll.http;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Pulls items from a source that blocks, at most {@value #MOST} ahead of the one who writes them out: so the writer can tell whether more is there already and flush
 * once for all of it, and can do something (a keep-alive) when nothing comes. A source has a last item that its reader knows when it sees it, and reads no further.
 * Closing closes the source.
 */
public final class Ahead<T> implements AutoCloseable {
    /** Where items come from. */
    @FunctionalInterface
    public interface Source<T> {
        /** Waits for the next; empty after the last, and once it was closed. */
        Optional<T> next() throws InterruptedException;
    }

    private static final int MOST = 16;

    private sealed interface Pulled<T> {
        record Item<T>(T item) implements Pulled<T> {}

        record Failed<T>(RuntimeException failure) implements Pulled<T> {}
    }

    private final Source<T> source;
    private final Runnable close;
    private final BlockingQueue<Pulled<T>> items = new ArrayBlockingQueue<>(MOST);
    private final Thread puller;

    /**
     * @param name of what is followed, for the thread that pulls
     * @param close ends the source, and a wait for its next item; may be called from any thread
     */
    public Ahead(String name, Source<T> source, Runnable close) {
        this.source = source;
        this.close = close;
        this.puller = Thread.ofVirtual().name("ahead-" + name).start(this::pull);
    }

    private void pull() {
        try {
            Optional<T> item = source.next();
            while (item.isPresent()) {
                items.put(new Pulled.Item<>(item.get()));
                item = source.next();
            }
            items.put(new Pulled.Failed<>(new IllegalStateException("read on after the last item")));
        } catch (RuntimeException e) {
            fail(e);
        } catch (InterruptedException _) {
            // The reader closed this: nobody waits for more.
        }
    }

    private void fail(RuntimeException failure) {
        try {
            items.put(new Pulled.Failed<>(failure));
        } catch (InterruptedException _) {
            // As above.
        }
    }

    /** The next item, waiting for it at most this long; null if none came. Throws what the source threw. */
    public @Nullable T poll(Duration wait) throws InterruptedException {
        return unwrap(items.poll(wait.toNanos(), TimeUnit.NANOSECONDS));
    }

    /** The next item if it is there already. */
    public @Nullable T poll() {
        return unwrap(items.poll());
    }

    private static <T> @Nullable T unwrap(@Nullable Pulled<T> pulled) {
        return switch (pulled) {
            case null -> null;
            case Pulled.Item<T>(T item) -> item;
            case Pulled.Failed<T>(RuntimeException failure) -> throw failure;
        };
    }

    @Override
    public void close() {
        close.run();
        puller.interrupt();
    }
}
