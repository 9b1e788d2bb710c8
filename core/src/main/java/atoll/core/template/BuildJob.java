package atoll.core.template;

import atoll.core.BuildId;
import atoll.core.node.ImageEvent;
import atoll.core.text.Utf8Joiner;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/** A build that has not ended: its record as it is now, its log, and those who wait for it. */
final class BuildJob {
    /** Of a log on disk; what comes then is followed and not kept, but for its last lines. */
    static final long MOST_LOG = 4L << 20;

    private static final System.Logger LOG = System.getLogger(BuildJob.class.getName());
    private static final int TAIL = 8 << 10;
    private static final int TAIL_LINES = 30;

    private final TemplateFiles files;
    private final Optional<CompletableFuture<Build>> before;
    private final BuildSecrets secrets;
    private final List<String> chain;
    private final CompletableFuture<Build> ended = new CompletableFuture<>();
    private final Utf8Joiner stdout = new Utf8Joiner();
    private final Utf8Joiner stderr = new Utf8Joiner();

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();

    @GuardedBy("lock")
    private Build build;

    /** Of the log on disk. */
    @GuardedBy("lock")
    private long written;

    @GuardedBy("lock")
    private boolean full;

    @GuardedBy("lock")
    private final StringBuilder tail = new StringBuilder();

    @GuardedBy("lock")
    private Optional<BuildEvent.Progress> progress = Optional.empty();

    @GuardedBy("lock")
    private @Nullable Thread thread;

    @GuardedBy("lock")
    private boolean cancelled;

    @GuardedBy("lock")
    private boolean late;

    BuildJob(Build build, TemplateFiles files, Optional<BuildJob> before, BuildSecrets secrets, List<String> chain) {
        this.build = build;
        this.files = files;
        this.before = before.map(BuildJob::ended);
        this.secrets = secrets;
        this.chain = List.copyOf(chain);
    }

    Build build() {
        lock.lock();
        try {
            return build;
        } finally {
            lock.unlock();
        }
    }

    BuildSecrets secrets() {
        return secrets;
    }

    /** Whether it does for who gives these secrets; none are asked for where none are given. */
    boolean has(BuildSecrets wanted) {
        return wanted.byId().isEmpty() || wanted.equals(secrets);
    }

    /** The templates whose builds wait for this one. */
    List<String> chain() {
        return chain;
    }

    CompletableFuture<Build> ended() {
        return ended;
    }

    /** The calling thread runs it from now on. */
    void enter() throws InterruptedException {
        lock.lock();
        try {
            if (cancelled) {
                throw new InterruptedException("it was cancelled before it began");
            }
            thread = Thread.currentThread();
        } finally {
            lock.unlock();
        }
    }

    /** Nobody interrupts the calling thread any more. */
    void leave() {
        lock.lock();
        try {
            thread = null;
            if (cancelled || late) {
                // What was meant for the build must not reach what comes after it.
                if (Thread.interrupted()) {
                    LOG.log(System.Logger.Level.DEBUG, "build " + build.id() + " was interrupted as it ended");
                }
            }
        } finally {
            lock.unlock();
        }
    }

    void awaitTurn() throws InterruptedException {
        if (before.isPresent()) {
            try {
                Build done = before.get().get();
                assert done.state().isOver();
            } catch (ExecutionException e) {
                throw new IllegalStateException("a build always ends with its record", e);
            }
        }
    }

    void begin(Build started) {
        lock.lock();
        try {
            build = started;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /** Ends it when that time is up. */
    void watch(Duration limit) {
        Thread watch = Thread.ofVirtual().name("build-limit").unstarted(() -> {
            try {
                Build done = ended.get(limit.toMillis(), TimeUnit.MILLISECONDS);
                assert done.state().isOver();
            } catch (TimeoutException e) {
                interrupt(false);
            } catch (InterruptedException | ExecutionException e) {
                Thread.currentThread().interrupt();
            }
        });
        watch.start();
    }

    void cancel() {
        interrupt(true);
    }

    private void interrupt(boolean byCaller) {
        lock.lock();
        try {
            if (byCaller) {
                cancelled = true;
            } else {
                late = true;
            }
            Thread running = thread;
            if (running != null) {
                running.interrupt();
            }
        } finally {
            lock.unlock();
        }
    }

    boolean isCancelled() {
        lock.lock();
        try {
            return cancelled;
        } finally {
            lock.unlock();
        }
    }

    /** Whether it took too long. */
    boolean isLate() {
        lock.lock();
        try {
            return late;
        } finally {
            lock.unlock();
        }
    }

    void end(Build how) {
        lock.lock();
        try {
            build = how;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        boolean first = ended.complete(how);
        assert first;
    }

    void note(ImageEvent event) {
        switch (event) {
            case ImageEvent.Step step -> {
                lock.lock();
                try {
                    build = build.at(new Build.Step(step.number(), step.total(), step.text()));
                    append(BuildLogReader.line(
                            new BuildEvent.Step(step.number(), step.total(), step.text(), step.cached())));
                } finally {
                    lock.unlock();
                }
            }
            case ImageEvent.Log log -> {
                String text = (log.stderr() ? stderr : stdout).decode(log.data().duplicate());
                lock.lock();
                try {
                    remember(text);
                    if (!text.isEmpty()) {
                        append(BuildLogReader.line(new BuildEvent.Log(text, log.stderr())));
                    }
                } finally {
                    lock.unlock();
                }
            }
            case ImageEvent.Progress(String what, long done, long total) -> {
                lock.lock();
                try {
                    progress = Optional.of(new BuildEvent.Progress(what, done, total));
                    changed.signalAll();
                } finally {
                    lock.unlock();
                }
            }
            case ImageEvent.Done _ -> {}
        }
    }

    @GuardedBy("lock")
    private void append(String line) {
        if (full) {
            return;
        }
        byte[] bytes = line.getBytes(StandardCharsets.UTF_8);
        if (written + bytes.length > MOST_LOG) {
            full = true;
            bytes = BuildLogReader.line(
                            new BuildEvent.Log("\n[the rest of this log was not kept: it is too long]\n", true))
                    .getBytes(StandardCharsets.UTF_8);
        }
        files.append(build.id(), bytes);
        written += bytes.length;
        changed.signalAll();
    }

    @GuardedBy("lock")
    private void remember(String text) {
        tail.append(text);
        if (tail.length() > 2 * TAIL) {
            tail.delete(0, tail.length() - TAIL);
        }
    }

    String lastLines() {
        lock.lock();
        try {
            return lastLines(tail.toString());
        } finally {
            lock.unlock();
        }
    }

    static String lastLines(String text) {
        List<String> lines = text.strip().lines().toList();
        List<String> last = lines.subList(Math.max(0, lines.size() - TAIL_LINES), lines.size());
        String joined = String.join("\n", last);
        return joined.length() > TAIL ? joined.substring(joined.length() - TAIL) : joined;
    }

    /** Of a log that an earlier server wrote. */
    static String lastLines(TemplateFiles files, BuildId id) {
        StringBuilder text = new StringBuilder();
        long offset = 0;
        byte[] piece = files.read(id, offset, 1 << 20);
        while (piece.length > 0 && offset < 2 * MOST_LOG) {
            offset += piece.length;
            new String(piece, StandardCharsets.UTF_8)
                    .lines()
                    .flatMap(line -> BuildLogReader.event(line).stream())
                    .forEach(event -> {
                        if (event instanceof BuildEvent.Log log) {
                            text.append(log.text());
                        }
                    });
            piece = files.read(id, offset, 1 << 20);
        }
        return lastLines(text.toString());
    }

    /** Waits until there is more than that on disk, other progress than that, or an end; at most so long. */
    void await(long seen, Optional<BuildEvent.Progress> seenProgress, Duration limit) throws InterruptedException {
        lock.lockInterruptibly();
        try {
            long left = limit.toNanos();
            while (left > 0
                    && written <= seen
                    && progress.equals(seenProgress)
                    && !build.state().isOver()) {
                left = changed.awaitNanos(left);
            }
        } finally {
            lock.unlock();
        }
    }

    Optional<BuildEvent.Progress> progress() {
        lock.lock();
        try {
            return progress;
        } finally {
            lock.unlock();
        }
    }
}
