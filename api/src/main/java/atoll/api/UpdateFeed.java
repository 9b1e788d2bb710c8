package atoll.api;

import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionUpdate;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Pulls the updates of an execution ahead of the one who writes them out, at most {@value #AHEAD}: so the writer can tell whether more is there already and
 * flush once for all of it, and can do something (a keep-alive) when nothing comes. Closing closes the handle and leaves the execution running.
 */
final class UpdateFeed implements AutoCloseable {
    private static final int AHEAD = 16;

    private sealed interface Item {
        record Update(ExecutionUpdate update) implements Item {}

        record Failed(RuntimeException failure) implements Item {}
    }

    private final ExecutionHandle handle;
    private final BlockingQueue<Item> items = new ArrayBlockingQueue<>(AHEAD);
    private final Thread puller;

    UpdateFeed(ExecutionHandle handle) {
        this.handle = handle;
        this.puller = Thread.ofVirtual().name("updates-" + handle.executionId()).start(this::pull);
    }

    private void pull() {
        try {
            Optional<ExecutionUpdate> update = handle.next();
            while (update.isPresent()) {
                items.put(new Item.Update(update.get()));
                update = handle.next();
            }
        } catch (RuntimeException e) {
            offer(new Item.Failed(e));
        } catch (InterruptedException _) {
            // The writer closed the feed: nobody waits for more.
        }
    }

    private void offer(Item item) {
        try {
            items.put(item);
        } catch (InterruptedException _) {
            // As above.
        }
    }

    /** The next update, waiting for it at most this long; null if none came. */
    @Nullable
    ExecutionUpdate poll(Duration wait) throws InterruptedException {
        return unwrap(items.poll(wait.toNanos(), TimeUnit.NANOSECONDS));
    }

    /** The next update if it is there already. */
    @Nullable
    ExecutionUpdate poll() {
        return unwrap(items.poll());
    }

    private static @Nullable ExecutionUpdate unwrap(@Nullable Item item) {
        return switch (item) {
            case null -> null;
            case Item.Update(ExecutionUpdate update) -> update;
            case Item.Failed(RuntimeException failure) -> throw failure;
        };
    }

    @Override
    public void close() {
        handle.close();
        puller.interrupt();
    }
}
