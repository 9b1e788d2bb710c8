package atoll.api;

import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionUpdate;
import atoll.core.process.ProcessFeed;
import atoll.core.process.ProcessUpdate;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Pulls the updates of an execution or a process ahead of the one who writes them out, at most {@value #AHEAD}: so the writer can tell whether more is there already and
 * flush once for all of it, and can do something (a keep-alive) when nothing comes. Closing closes the source and leaves what it is about running.
 */
final class UpdateFeed<U> implements AutoCloseable {
    /** Where updates come from. */
    interface Source<U> {
        /** Waits for the next; empty after the last, and once it was closed. */
        Optional<U> next() throws InterruptedException;

        void close();
    }

    private static final int AHEAD = 16;

    private sealed interface Item<U> {
        record Update<U>(U update) implements Item<U> {}

        record Failed<U>(RuntimeException failure) implements Item<U> {}
    }

    private final Source<U> source;
    private final BlockingQueue<Item<U>> items = new ArrayBlockingQueue<>(AHEAD);
    private final Thread puller;

    UpdateFeed(String name, Source<U> source) {
        this.source = source;
        this.puller = Thread.ofVirtual().name("updates-" + name).start(this::pull);
    }

    static UpdateFeed<ExecutionUpdate> of(ExecutionHandle handle) {
        return new UpdateFeed<>(handle.executionId().toString(), new Source<>() {
            @Override
            public Optional<ExecutionUpdate> next() throws InterruptedException {
                return handle.next();
            }

            @Override
            public void close() {
                handle.close();
            }
        });
    }

    static UpdateFeed<ProcessUpdate> of(ProcessFeed feed) {
        return new UpdateFeed<>(feed.process().id().toString(), new Source<>() {
            @Override
            public Optional<ProcessUpdate> next() throws InterruptedException {
                return feed.next();
            }

            @Override
            public void close() {
                feed.close();
            }
        });
    }

    private void pull() {
        try {
            Optional<U> update = source.next();
            while (update.isPresent()) {
                items.put(new Item.Update<>(update.get()));
                update = source.next();
            }
        } catch (RuntimeException e) {
            offer(new Item.Failed<>(e));
        } catch (InterruptedException _) {
            // The writer closed the feed: nobody waits for more.
        }
    }

    private void offer(Item<U> item) {
        try {
            items.put(item);
        } catch (InterruptedException _) {
            // As above.
        }
    }

    /** The next update, waiting for it at most this long; null if none came. */
    @Nullable
    U poll(Duration wait) throws InterruptedException {
        return unwrap(items.poll(wait.toNanos(), TimeUnit.NANOSECONDS));
    }

    /** The next update if it is there already. */
    @Nullable
    U poll() {
        return unwrap(items.poll());
    }

    private static <U> @Nullable U unwrap(@Nullable Item<U> item) {
        return switch (item) {
            case null -> null;
            case Item.Update<U>(U update) -> update;
            case Item.Failed<U>(RuntimeException failure) -> throw failure;
        };
    }

    @Override
    public void close() {
        source.close();
        puller.interrupt();
    }
}
