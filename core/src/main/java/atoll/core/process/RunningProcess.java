package atoll.core.process;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.ProcessId;
import atoll.core.SandboxId;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeProcess;
import atoll.core.node.NodeProcesses;
import atoll.core.node.PatientNode;
import atoll.core.process.ProcessRecord.Progress;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/** A process until its end is on record. {@link #watch} follows it without a thread; whoever sees its end first records it. */
final class RunningProcess {
    private static final System.Logger LOG = System.getLogger(RunningProcess.class.getName());
    private static final long FIRST_PAUSE_MILLIS = 20;
    private static final long LONGEST_PAUSE_MILLIS = 5_000;
    /** One call to write takes no longer, so that a broken connection is noticed. */
    private static final Duration LONGEST_WRITE = Duration.ofSeconds(30);

    private static final long WRITE_PAUSE_MILLIS = 20;

    /** Who wants to know. */
    interface Owner {
        void hasPid(RunningProcess process, int pid);

        /** Puts it on record; never again once it was one that has ended. */
        void save(ProcessRecord record);

        /** Called once, after it was put on record. */
        void ended(RunningProcess process, ProcessRecord record);

        /** How it ended, when the node does not know it any more; fails to have the node asked again. */
        ProcessEnd lost(ProcessRecord record, AtollException e);
    }

    private final BoxId box;
    private final PatientNode node;
    private final Executor background;
    private final Owner owner;
    private final CompletableFuture<ProcessRecord> done = new CompletableFuture<>();

    /** One writer at a time, so that inputs without an offset follow one another. */
    private final ReentrantLock input = new ReentrantLock();

    /** How far the input has been written; -1 before anybody asked the node. */
    @GuardedBy("input")
    private long written = -1;

    /** Held while a record is given to the store, so that none that runs follows one that has ended. */
    private final ReentrantLock saving = new ReentrantLock();

    private final Object lock = new Object();

    @GuardedBy("lock")
    private ProcessRecord record;

    @GuardedBy("lock")
    private boolean watching;

    @GuardedBy("lock")
    private int failures;

    /** The one that the owner was told; 0 before. */
    @GuardedBy("lock")
    private int announcedPid;

    RunningProcess(ProcessRecord record, BoxId box, PatientNode node, Executor background, Owner owner) {
        this.record = record;
        this.box = box;
        this.node = node;
        this.background = background;
        this.owner = owner;
    }

    ProcessId id() {
        return record().id();
    }

    SandboxId sandboxId() {
        return record().sandboxId();
    }

    BoxId box() {
        return box;
    }

    ProcessRecord record() {
        synchronized (lock) {
            return record;
        }
    }

    /** Waits for its end; empty when the time is up. */
    Optional<ProcessRecord> await(long nanos) throws InterruptedException {
        try {
            return Optional.of(done.get(nanos, TimeUnit.NANOSECONDS));
        } catch (TimeoutException e) {
            return Optional.empty();
        } catch (ExecutionException e) {
            throw AtollException.internal("a process could not be waited for", e);
        }
    }

    /** Has the node tell its end, unless that was asked already. */
    void watch() {
        synchronized (lock) {
            if (watching || !record.running()) {
                return;
            }
            watching = true;
        }
        CompletableFuture<NodeProcess> end;
        try {
            end = node.processes().ended(box, id());
        } catch (AtollException e) {
            end = CompletableFuture.failedFuture(e);
        }
        CompletableFuture<NodeProcess> told = end.whenCompleteAsync(this::told, background);
        assert told != null;
    }

    private void told(@Nullable NodeProcess seen, @Nullable Throwable failure) {
        synchronized (lock) {
            watching = false;
            failures = failure == null ? 0 : failures + 1;
        }
        if (seen != null) {
            ProcessRecord now = seen(seen);
            if (now.running()) {
                watchLater();
            }
            return;
        }
        Throwable cause = failure instanceof CompletionException wrapped && wrapped.getCause() != null
                ? wrapped.getCause()
                : failure;
        if (cause instanceof AtollException e && (e.code() == ErrorCode.NOT_FOUND || e.code() == ErrorCode.CONFLICT)) {
            lost(e);
            return;
        }
        boolean expected = cause instanceof AtollException e
                && (e.code() == ErrorCode.NODE_UNAVAILABLE || e.code() == ErrorCode.SANDBOX_PAUSED);
        if (!expected) {
            LOG.log(System.Logger.Level.WARNING, "process " + id() + " is asked for again", cause);
        }
        watchLater();
    }

    private void lost(AtollException e) {
        try {
            ProcessRecord now = record();
            ProcessRecord ended = ended(
                    owner.lost(now, e),
                    now.progress().stdoutBytes(),
                    now.progress().stderrBytes());
            assert !ended.running();
        } catch (AtollException later) {
            watchLater();
        }
    }

    private void watchLater() {
        if (node.replaced()) {
            return;
        }
        int times;
        synchronized (lock) {
            times = failures;
        }
        long pause = Math.min(LONGEST_PAUSE_MILLIS, FIRST_PAUSE_MILLIS << Math.min(times, 10));
        CompletableFuture.delayedExecutor(pause, TimeUnit.MILLISECONDS, background)
                .execute(this::watch);
    }

    /** Takes in what the node says; returns the record as it is then. */
    ProcessRecord seen(NodeProcess seen) {
        int newPid = 0;
        synchronized (lock) {
            if (!record.running()) {
                return record;
            }
            if (seen.pid() != announcedPid) {
                newPid = seen.pid();
                announcedPid = newPid;
            }
            Progress progress =
                    new Progress(seen.stdoutBytes(), seen.stderrBytes(), seen.stdinOffset(), seen.stdinClosed());
            record = record.with(
                    seen.pid() == 0 ? record.pid() : seen.pid(),
                    Optional.of(seen.startedAt()),
                    progress,
                    Optional.empty());
        }
        if (newPid != 0) {
            owner.hasPid(this, newPid);
        }
        Optional<NodeEvent.Finish> finish = seen.finish();
        return finish.isPresent()
                ? ended(ProcessEnd.of(finish.get()), seen.stdoutBytes(), seen.stderrBytes())
                : record();
    }

    /** Puts it on record as it is now, if it has not ended. */
    void save() {
        saving.lock();
        try {
            ProcessRecord now = record();
            if (now.running()) {
                owner.save(now);
            }
        } finally {
            saving.unlock();
        }
    }

    void resized(TerminalSize size) {
        synchronized (lock) {
            record = record.with(size);
        }
    }

    /** Records its end, if nobody did before; returns what is on record. */
    ProcessRecord ended(ProcessEnd end, long stdoutBytes, long stderrBytes) {
        ProcessRecord finished;
        synchronized (lock) {
            if (!record.running()) {
                return record;
            }
            Progress progress = new Progress(
                    Math.max(stdoutBytes, record.progress().stdoutBytes()),
                    Math.max(stderrBytes, record.progress().stderrBytes()),
                    record.progress().stdinOffset(),
                    record.progress().stdinClosed());
            finished = record.with(record.pid(), record.startedAt(), progress, Optional.of(end));
            record = finished;
        }
        saving.lock();
        try {
            owner.save(finished);
        } finally {
            saving.unlock();
        }
        owner.ended(this, finished);
        done.complete(finished);
        return finished;
    }

    /** Writes at most until the limit; see {@link Processes#write}. */
    Written write(OptionalLong offset, ByteBuffer data, boolean close, long limitNanos) throws InterruptedException {
        long end = System.nanoTime() + limitNanos;
        if (!input.tryLock(limitNanos, TimeUnit.NANOSECONDS)) {
            // Another write waits for the program: it is as far as it is.
            InputPosition reached = position();
            return new Written(reached.offset(), reached.closed(), false);
        }
        try {
            if (offset.isEmpty() && written < 0) {
                written = position().offset();
            }
            return write(offset.orElse(written), data.duplicate(), close, end);
        } finally {
            input.unlock();
        }
    }

    private InputPosition position() {
        ProcessRecord now = seen(node.processes().get(box, id()));
        return new InputPosition(now.progress().stdinOffset(), now.progress().stdinClosed());
    }

    @GuardedBy("input")
    private Written write(long from, ByteBuffer data, boolean close, long endNanos) throws InterruptedException {
        long at = from;
        while (true) {
            int size = Math.min(data.remaining(), NodeProcesses.LARGEST_WRITE);
            boolean last = size == data.remaining();
            long left = Math.max(1, endNanos - System.nanoTime());
            Duration limit = Duration.ofNanos(Math.min(left, LONGEST_WRITE.toNanos()));
            InputPosition reached = node.processes()
                    .write(box, id(), OptionalLong.of(at), data.slice(data.position(), size), close && last, limit);
            written = reached.offset();
            int taken = Math.clamp(reached.offset() - at, 0, size);
            at += taken;
            data.position(data.position() + taken);
            boolean complete = last && taken == size;
            if (complete || reached.closed() || System.nanoTime() >= endNanos) {
                return new Written(reached.offset(), reached.closed(), complete);
            }
            if (taken == 0) {
                Thread.sleep(WRITE_PAUSE_MILLIS);
            }
        }
    }
}
