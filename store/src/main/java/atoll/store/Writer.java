package atoll.store;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The only one that writes: a thread that takes everything that waits and commits it together. A write that someone waits for goes at
 * once, and its commit is done before the wait ends; one that nobody waits for stays {@code GATHER_NANOS}, so that thousands a second
 * become a few dozen commits, and the row of an execution that ended meanwhile is written once. When a batch fails its writes are made again one by one, and only the guilty one fails.
 * When the disk is full, the reserve is given up for it.
 */
final class Writer implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(Writer.class.getName());
    private static final long GATHER_NANOS = TimeUnit.MILLISECONDS.toNanos(25);
    private static final int MOST_AT_ONCE = 2_000;
    private static final int MOST_WAITING = 20_000;

    interface Work<T> {
        T run(Sql sql) throws SQLException;
    }

    private record Write<T>(Work<T> work, boolean urgent, CompletableFuture<T> done) {
        void attempt(Sql sql, List<Runnable> afterCommit) throws SQLException {
            T result = work.run(sql);
            afterCommit.add(() -> done.complete(result));
        }
    }

    private static final long REFILL_NANOS = TimeUnit.SECONDS.toNanos(10);

    private final Dialect dialect;
    private final Sql sql;
    private final Reserve reserve;
    /** When the reserve was looked after last; used by {@link #thread} only. */
    private long lookedAfter;
    /** Whether the reserve was there then; used by {@link #thread} only. */
    private boolean reserved;

    private final String begin;
    /** What the connection was last told; used by {@link #thread} only. */
    private boolean lastDurable;

    private final Thread thread;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();

    @GuardedBy("lock")
    private List<Write<?>> waiting = new ArrayList<>();

    @GuardedBy("lock")
    private boolean urgentWaiting;

    @GuardedBy("lock")
    private boolean closed;

    Writer(Dialect dialect, Sql sql, Reserve reserve) {
        this.reserve = reserve;
        this.dialect = dialect;
        this.begin = dialect.begin();
        this.sql = sql;
        this.thread = Thread.ofPlatform().name("store-writer").daemon().unstarted(this::run);
    }

    void start() throws SQLException {
        dialect.prepare(sql.connection(), false);
        lookAfterReserve();
        thread.start();
    }

    /** Writes now and waits until it is on disk. */
    <T> T write(Work<T> work) {
        CompletableFuture<T> done = new CompletableFuture<>();
        add(new Write<>(work, true, done));
        try {
            return done.join();
        } catch (CompletionException e) {
            if (e.getCause() instanceof AtollException known) {
                throw known;
            }
            if (e.getCause() instanceof SQLException refused && dialect.isDiskFull(refused)) {
                throw new AtollException(
                        ErrorCode.DISK_FULL,
                        "the store could not write: " + refused.getMessage(),
                        "The disk of the server's data folder is full.",
                        "Make room: delete sandboxes and snapshots, or move the data folder to a larger disk.",
                        refused);
            }
            throw AtollException.internal("the store could not write", e.getCause());
        }
    }

    /** Writes soon; {@code whenDurable} runs on this thread after the commit. */
    void writeLater(Work<Boolean> work, Runnable whenDurable) {
        CompletableFuture<Boolean> done = new CompletableFuture<>();
        CompletableFuture<Void> reported = done.handle((_, failure) -> {
            if (failure == null) {
                whenDurable.run();
            } else {
                LOG.log(System.Logger.Level.ERROR, "a record could not be written", failure);
            }
            return null;
        });
        assert reported != null;
        add(new Write<>(work, false, done));
    }

    /** Waits until everything that was added before is written. */
    void flush() {
        boolean idle;
        lock.lock();
        try {
            idle = waiting.isEmpty() && !working;
        } finally {
            lock.unlock();
        }
        if (!idle) {
            boolean written = write(_ -> true);
            assert written;
        }
    }

    private void add(Write<?> write) {
        lock.lock();
        try {
            while (waiting.size() >= MOST_WAITING && !closed && !write.urgent()) {
                changed.awaitUninterruptibly();
            }
            if (closed) {
                throw AtollException.internal("the store is closed", null);
            }
            waiting.add(write);
            if (write.urgent()) {
                urgentWaiting = true;
                changed.signalAll();
            } else if (waiting.size() == 1) {
                changed.signalAll();
            }
        } finally {
            lock.unlock();
        }
    }

    @GuardedBy("lock")
    private boolean working;

    private void run() {
        while (true) {
            List<Write<?>> batch = next();
            if (batch.isEmpty()) {
                return;
            }
            commit(batch);
            if (!reserved || System.nanoTime() - lookedAfter > REFILL_NANOS) {
                lookAfterReserve();
            }
            lock.lock();
            try {
                working = false;
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }
    }

    /** One that was given up is made again with the first write after there is room: the disk may soon be full once more. */
    private void lookAfterReserve() {
        reserved = reserve.fill();
        lookedAfter = System.nanoTime();
    }

    /** Waits for something to write; empty when closed and all is written. */
    private List<Write<?>> next() {
        lock.lock();
        try {
            while (waiting.isEmpty()) {
                if (closed) {
                    return List.of();
                }
                changed.awaitUninterruptibly();
            }
            gather();
            List<Write<?>> batch;
            if (waiting.size() <= MOST_AT_ONCE) {
                batch = waiting;
                waiting = new ArrayList<>();
            } else {
                batch = new ArrayList<>(waiting.subList(0, MOST_AT_ONCE));
                waiting = new ArrayList<>(waiting.subList(MOST_AT_ONCE, waiting.size()));
            }
            urgentWaiting = waiting.stream().anyMatch(Write::urgent);
            working = true;
            return batch;
        } finally {
            lock.unlock();
        }
    }

    @GuardedBy("lock")
    private void gather() {
        long left = GATHER_NANOS;
        try {
            while (!urgentWaiting && !closed && left > 0 && waiting.size() < MOST_AT_ONCE) {
                left = changed.awaitNanos(left);
            }
        } catch (InterruptedException e) {
            // Nobody interrupts this thread; if somebody does, it writes at once.
            LOG.log(System.Logger.Level.DEBUG, "interrupted while gathering", e);
        }
    }

    private void commit(List<Write<?>> batch) {
        List<Runnable> afterCommit = new ArrayList<>(batch.size());
        try {
            begin(batch.stream().anyMatch(Write::urgent));
            for (Write<?> write : batch) {
                write.attempt(sql, afterCommit);
            }
            sql.execute("commit");
        } catch (SQLException | RuntimeException e) {
            rollback();
            if (e instanceof SQLException failure && dialect.isDiskFull(failure) && reserve.giveUp()) {
                reserved = false;
                commit(batch);
            } else if (batch.size() == 1) {
                boolean told = batch.getFirst().done().completeExceptionally(e);
                assert told;
            } else {
                batch.forEach(write -> commit(List.of(write)));
            }
            return;
        }
        afterCommit.forEach(Runnable::run);
    }

    private void begin(boolean durable) throws SQLException {
        if (durable != lastDurable) {
            dialect.prepare(sql.connection(), durable);
            lastDurable = durable;
        }
        sql.execute(begin);
    }

    private void rollback() {
        try {
            sql.execute("rollback");
        } catch (SQLException e) {
            LOG.log(System.Logger.Level.DEBUG, "nothing to roll back", e);
        }
    }

    /** Writes what waits, then ends. */
    @Override
    public void close() {
        lock.lock();
        try {
            closed = true;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        try {
            thread.join();
            sql.close();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (SQLException e) {
            LOG.log(System.Logger.Level.WARNING, "the store's connection could not be closed", e);
        }
    }
}
