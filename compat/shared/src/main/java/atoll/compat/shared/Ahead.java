package atoll.compat.shared;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Pulls from a source that blocks, a little ahead of the one who writes it out: who can then do something else, such as a keep-alive, when nothing comes. Closing
 * closes the source.
 */
public final class Ahead<T> implements AutoCloseable {
    private static final int MOST = 16;

    /** Where items come from. */
    public interface Source<T> {
        /** Waits for the next; empty after the last. */
        Optional<T> next() throws InterruptedException;

        void close();
    }

    /** What {@link Ahead#poll} found. */
    public sealed interface Polled<T> {
        record Item<T>(T item) implements Polled<T> {}

        /** Nothing came in the time. */
        record Nothing<T>() implements Polled<T> {}

        record End<T>() implements Polled<T> {}

        record Failed<T>(RuntimeException failure) implements Polled<T> {}
    }

    private final Source<T> source;
    private final BlockingQueue<Polled<T>> items = new ArrayBlockingQueue<>(MOST);
    private final Thread puller;
    private boolean over;

    public Ahead(String name, Source<T> source) {
        this.source = source;
        this.puller = Thread.ofVirtual().name("ahead-" + name).start(this::pull);
    }

    private void pull() {
        try {
            Optional<T> item = source.next();
            while (item.isPresent()) {
                items.put(new Polled.Item<>(item.get()));
                item = source.next();
            }
            items.put(new Polled.End<>());
        } catch (InterruptedException _) {
            // Closed: nobody waits for more.
        } catch (RuntimeException e) {
            try {
                items.put(new Polled.Failed<>(e));
            } catch (InterruptedException _) {
                // As above.
            }
        }
    }

    /** Waits for the next item, at most so long; throws what the source threw. */
    public Polled<T> poll(Duration wait) throws InterruptedException {
        if (over) {
            return new Polled.End<>();
        }
        Polled<T> polled = items.poll(wait.toNanos(), TimeUnit.NANOSECONDS);
        return switch (polled) {
            case null -> new Polled.Nothing<>();
            case Polled.Failed<T>(RuntimeException failure) -> throw failure;
            case Polled.End<T> end -> {
                over = true;
                yield end;
            }
            default -> polled;
        };
    }

    @Override
    public void close() {
        source.close();
        puller.interrupt();
    }
}
