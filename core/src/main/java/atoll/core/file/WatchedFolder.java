package atoll.core.file;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.node.NodeStream;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Gathers the events of a watched folder, the last {@value #CAPACITY}: whoever asks late, or reads slowly, learns that some were lost, and nothing piles up. When
 * the node was away, or the sandbox paused, the watch is opened again, with an {@link FileEvent.Kind#OVERFLOW} in between.
 */
final class WatchedFolder implements AutoCloseable {
    static final int CAPACITY = 10_000;
    private static final Duration OPENING = Duration.ofSeconds(30);
    private static final long SHORTEST_PAUSE_MILLIS = 20;
    private static final long LONGEST_PAUSE_MILLIS = 1_000;

    private final Supplier<NodeStream<FileEvent>> source;
    /** Whether its sandbox is paused: then it is not opened again, which would resume the sandbox. */
    private final BooleanSupplier paused;

    private final Function<RuntimeException, RuntimeException> translation;
    private final Object lock = new Object();

    @GuardedBy("lock")
    private final Deque<FileEvent> events = new ArrayDeque<>();

    /** Number of the first one held; they count from 1. */
    @GuardedBy("lock")
    private long first = 1;

    /** Up to where {@link #drain} has given them. */
    @GuardedBy("lock")
    private long drained;

    @GuardedBy("lock")
    private @Nullable RuntimeException failure;

    @GuardedBy("lock")
    private boolean closed;

    @GuardedBy("lock")
    private @Nullable NodeStream<FileEvent> stream;

    private WatchedFolder(
            Supplier<NodeStream<FileEvent>> source,
            BooleanSupplier paused,
            Function<RuntimeException, RuntimeException> translation) {
        this.source = source;
        this.paused = paused;
        this.translation = translation;
    }

    /** Returns when nothing is missed any more. */
    static WatchedFolder open(
            Supplier<NodeStream<FileEvent>> source,
            BooleanSupplier paused,
            Function<RuntimeException, RuntimeException> translation,
            Executor background)
            throws InterruptedException {
        var watch = new WatchedFolder(source, paused, translation);
        background.execute(watch::pull);
        try {
            watch.awaitReady();
            return watch;
        } catch (RuntimeException | InterruptedException e) {
            watch.close();
            throw e;
        }
    }

    private void awaitReady() throws InterruptedException {
        Page ready = after(0, OPENING);
        if (ready.events.isEmpty()) {
            throw new AtollException(
                    ErrorCode.NODE_UNAVAILABLE,
                    "the watch was not ready within %d s".formatted(OPENING.toSeconds()),
                    "The sandbox or its node is busy or away.",
                    "Try again.");
        }
    }

    private void pull() {
        boolean again = false;
        long pause = SHORTEST_PAUSE_MILLIS;
        while (true) {
            try {
                NodeStream<FileEvent> opened = source.get();
                if (!follows(opened)) {
                    opened.close();
                    return;
                }
                try (opened) {
                    Optional<FileEvent> event = opened.next();
                    while (event.isPresent()) {
                        pause = SHORTEST_PAUSE_MILLIS;
                        FileEvent seen = event.get();
                        boolean reopened = again && seen.kind() == FileEvent.Kind.READY;
                        add(reopened ? lost(seen.at()) : seen);
                        again = true;
                        event = opened.next();
                    }
                }
                fail(new AtollException(
                        ErrorCode.FILE_NOT_FOUND,
                        "the watch has ended: the watched folder is not there any more",
                        "",
                        "Watch the folder above it."));
                return;
            } catch (AtollException e) {
                boolean passes = e.code() == ErrorCode.NODE_UNAVAILABLE || e.code() == ErrorCode.SANDBOX_PAUSED;
                if (!passes || isClosed()) {
                    fail(translation.apply(e));
                    return;
                }
            } catch (InterruptedException _) {
                // The server stops.
                return;
            } catch (RuntimeException e) {
                fail(e);
                return;
            }
            try {
                do {
                    Thread.sleep(pause);
                } while (again && paused.getAsBoolean() && !isClosed());
            } catch (InterruptedException _) {
                return;
            }
            pause = Math.min(2 * pause, LONGEST_PAUSE_MILLIS);
        }
    }

    private boolean follows(NodeStream<FileEvent> opened) {
        synchronized (lock) {
            stream = opened;
            return !closed;
        }
    }

    private boolean isClosed() {
        synchronized (lock) {
            return closed;
        }
    }

    private void add(FileEvent event) {
        synchronized (lock) {
            events.add(event);
            if (events.size() > CAPACITY) {
                events.remove();
                first++;
            }
            lock.notifyAll();
        }
    }

    private void fail(RuntimeException how) {
        synchronized (lock) {
            failure = how;
            lock.notifyAll();
        }
    }

    private static FileEvent lost(Instant at) {
        return new FileEvent(FileEvent.Kind.OVERFLOW, "", "", Optional.empty(), at);
    }

    /** @param lost whether some were dropped between the position asked for and these */
    private record Page(List<FileEvent> events, long next, boolean lost) {}

    /** What there is after a position, waiting for the first of them. A failure comes only after all that was seen before it. */
    private Page after(long position, Duration wait) throws InterruptedException {
        long deadline = System.nanoTime() + wait.toNanos();
        synchronized (lock) {
            while (first + events.size() - 1 <= position) {
                if (failure != null) {
                    throw failure;
                }
                long left = deadline - System.nanoTime();
                if (closed || left <= 0) {
                    return new Page(List.of(), Math.min(position, first + events.size() - 1), false);
                }
                TimeUnit.NANOSECONDS.timedWait(lock, left);
            }
            long skip = Math.max(0, position + 1 - first);
            var found = new ArrayList<FileEvent>();
            Iterator<FileEvent> all = events.iterator();
            for (long i = 0; all.hasNext(); i++) {
                FileEvent event = all.next();
                if (i >= skip) {
                    found.add(event);
                }
            }
            return new Page(found, first + events.size() - 1, position + 1 < first);
        }
    }

    /** The events after a position, without the first one, that only says that the watch is there. */
    WatchPage page(long after, Duration wait) throws InterruptedException {
        // The event READY has number 1.
        Page page = after(Math.max(1, after), wait);
        boolean overflow = page.lost || page.events.stream().anyMatch(event -> event.kind() == FileEvent.Kind.OVERFLOW);
        List<FileEvent> changes = page.events.stream()
                .filter(event -> event.kind() != FileEvent.Kind.OVERFLOW)
                .toList();
        return new WatchPage(changes, page.next, overflow);
    }

    /** The events that no earlier call has given. */
    WatchPage drain() throws InterruptedException {
        synchronized (lock) {
            WatchPage page = page(drained, Duration.ZERO);
            drained = page.next();
            return page;
        }
    }

    @Override
    public void close() {
        NodeStream<FileEvent> open;
        synchronized (lock) {
            closed = true;
            open = stream;
            events.clear();
            lock.notifyAll();
        }
        if (open != null) {
            open.close();
        }
    }

    /** One reader that takes them one by one. */
    static final class Follower implements FileWatch {
        private final WatchedFolder folder;
        private final Deque<FileEvent> taken = new ArrayDeque<>();
        private long position;

        Follower(WatchedFolder folder) {
            this.folder = folder;
        }

        @Override
        public Optional<FileEvent> next(Duration wait) throws InterruptedException {
            if (taken.isEmpty()) {
                Page page = folder.after(position, wait);
                position = page.next;
                if (page.lost) {
                    taken.add(lost(page.events.getFirst().at()));
                }
                taken.addAll(page.events);
            }
            return Optional.ofNullable(taken.poll());
        }

        @Override
        public void close() {
            folder.close();
        }
    }
}
