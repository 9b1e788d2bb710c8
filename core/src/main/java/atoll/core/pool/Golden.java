package atoll.core.pool;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.SnapshotId;
import atoll.core.node.Node;
import atoll.core.node.NodeSnapshot;
import atoll.core.snapshot.SnapshotKind;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * The snapshot that a pool's boxes are restored from, which takes a fraction of what starting one takes. It is made of a box that was
 * just started, found again by its label, and given up when it can't be restored: at once if it is unusable, else after some failures
 * in a row. Until there is another one boxes are started from nothing.
 */
final class Golden {
    private static final System.Logger LOG = System.getLogger(Golden.class.getName());
    /** The label of such snapshots; its value is that of the pool's boxes. */
    static final String LABEL = "atoll.golden";

    static final int MOST_FAILURES = 3;
    /** These say nothing about the snapshot: starting from nothing would fail in the same way. */
    private static final Set<ErrorCode> NOT_ITS_FAULT =
            EnumSet.of(ErrorCode.NODE_UNAVAILABLE, ErrorCode.NODE_FULL, ErrorCode.DISK_FULL, ErrorCode.SHUTTING_DOWN);

    private final String template;
    private final Node node;
    private final Executor background;
    private final LongSupplier nanos;

    private final ReentrantLock lock = new ReentrantLock();

    @GuardedBy("lock")
    private Optional<NodeSnapshot> present = Optional.empty();

    /** The one that is being made. */
    @GuardedBy("lock")
    private Optional<SnapshotId> making = Optional.empty();

    @GuardedBy("lock")
    private long madeAt;

    /** Of restores, in a row. */
    @GuardedBy("lock")
    private int failures;

    @GuardedBy("lock")
    private final Map<String, Long> failuresByReason = new TreeMap<>();

    @GuardedBy("lock")
    private final Backoff remake = new Backoff(Duration.ofSeconds(1), Duration.ofMinutes(5));

    /** Nobody is to get copies of it any more. */
    @GuardedBy("lock")
    private boolean givenUp;

    @GuardedBy("lock")
    private String lastProblem = "";

    Golden(String template, Node node, Executor background, LongSupplier nanos) {
        this.template = template;
        this.node = node;
        this.background = background;
        this.nanos = nanos;
    }

    /** The snapshot to restore from, if it was made of such boxes. */
    Optional<NodeSnapshot> of(String label) {
        lock.lock();
        try {
            return present.filter(there -> label.equals(there.labels().get(LABEL)));
        } finally {
            lock.unlock();
        }
    }

    Optional<NodeSnapshot> present() {
        lock.lock();
        try {
            return present;
        } finally {
            lock.unlock();
        }
    }

    Map<String, Long> failuresByReason() {
        lock.lock();
        try {
            return Map.copyOf(failuresByReason);
        } finally {
            lock.unlock();
        }
    }

    /** The id of the one that is to be made now, by the caller: it calls {@link #make} or {@link #leave}. Empty if none is to be. */
    Optional<SnapshotId> begin(long now) {
        lock.lock();
        try {
            if (givenUp || present.isPresent() || making.isPresent() || remake.left(now) > 0) {
                return Optional.empty();
            }
            making = Optional.of(SnapshotId.random());
            return making;
        } finally {
            lock.unlock();
        }
    }

    boolean isBeingMade() {
        lock.lock();
        try {
            return making.isPresent();
        } finally {
            lock.unlock();
        }
    }

    /** When one is to be made, from now; empty if there is one, or is about to be. */
    Optional<Long> nanosToMake(long now) {
        lock.lock();
        try {
            return !givenUp && present.isEmpty() && making.isEmpty()
                    ? Optional.of(Math.max(0, remake.left(now)))
                    : Optional.empty();
        } finally {
            lock.unlock();
        }
    }

    /** Whether a failed restore is a reason to start a box from nothing. */
    static boolean isToBlame(AtollException failure) {
        return !NOT_ITS_FAULT.contains(failure.code());
    }

    /** It is not made this time; nothing happens if it was. */
    void leave(SnapshotId id) {
        lock.lock();
        try {
            if (making.equals(Optional.of(id))) {
                making = Optional.empty();
            }
        } finally {
            lock.unlock();
        }
    }

    /** Makes it of a box that nobody uses; fails as the node does, and the box is then as it was, or gone. */
    void make(SnapshotId id, BoxId box, String label) {
        Optional<NodeSnapshot> made = Optional.empty();
        try {
            made = Optional.of(node.createSnapshot(box, id, SnapshotKind.MEMORY, Map.of(LABEL, label)));
        } catch (AtollException e) {
            if (e.code() == ErrorCode.UNSUPPORTED_BY_RUNTIME) {
                giveUp();
                throw e;
            }
            problem("no snapshot could be made of a fresh box, so boxes are started from nothing: " + e.message());
            // Its answer may have been lost, so that it is there after all.
            remove(id);
            throw e;
        } finally {
            made(made);
        }
    }

    private void made(Optional<NodeSnapshot> made) {
        Optional<SnapshotId> useless = Optional.empty();
        lock.lock();
        try {
            making = Optional.empty();
            if (givenUp) {
                useless = made.map(NodeSnapshot::id);
            } else if (made.isPresent()) {
                present = made;
                madeAt = nanos.getAsLong();
                remake.succeeded();
                lastProblem = "";
            } else {
                remake.failed(nanos.getAsLong());
            }
        } finally {
            lock.unlock();
        }
        useless.ifPresent(this::remove);
    }

    /** It is removed, and none is made again. */
    void giveUp() {
        Optional<SnapshotId> useless;
        lock.lock();
        try {
            givenUp = true;
            useless = present.map(NodeSnapshot::id);
            present = Optional.empty();
        } finally {
            lock.unlock();
        }
        useless.ifPresent(this::remove);
    }

    void restored() {
        lock.lock();
        try {
            failures = 0;
        } finally {
            lock.unlock();
        }
    }

    /** A restore failed, and the snapshot is to blame. */
    void failed(SnapshotId which, AtollException e) {
        boolean unusable = e.code() == ErrorCode.SNAPSHOT_NOT_FOUND || e.code() == ErrorCode.SNAPSHOT_UNUSABLE;
        lock.lock();
        try {
            failuresByReason.merge(e.code().name().toLowerCase(Locale.ROOT), 1L, Long::sum);
            if (present.isEmpty() || !present.get().id().equals(which)) {
                return;
            }
            failures++;
            if (!unusable && failures < MOST_FAILURES) {
                return;
            }
            failures = 0;
            present = Optional.empty();
            remake.failed(nanos.getAsLong());
        } finally {
            lock.unlock();
        }
        problem("its snapshot " + which + " is made anew, since it can't be restored: " + e.message());
        remove(which);
    }

    /** Takes note of all there were of its template on the node at that time; what is of no use is removed. */
    void found(List<NodeSnapshot> there, String label, long asOf) {
        List<NodeSnapshot> useless = new ArrayList<>();
        lock.lock();
        try {
            Optional<SnapshotId> unfinished = making;
            Optional<NodeSnapshot> best = there.stream()
                    .filter(snapshot -> label.equals(snapshot.labels().get(LABEL)))
                    .filter(snapshot -> snapshot.unusable().isEmpty())
                    .filter(snapshot -> !Optional.of(snapshot.id()).equals(unfinished))
                    .max(Comparator.comparing(NodeSnapshot::createdAt)
                            .thenComparing(snapshot -> snapshot.id().toString()));
            boolean madeSince = present.isPresent() && madeAt - asOf >= 0;
            if (!madeSince) {
                present = best;
            }
            for (NodeSnapshot snapshot : there) {
                Optional<SnapshotId> id = Optional.of(snapshot.id());
                if (!id.equals(making) && !id.equals(present.map(NodeSnapshot::id))) {
                    useless.add(snapshot);
                }
            }
        } finally {
            lock.unlock();
        }
        for (NodeSnapshot snapshot : useless) {
            snapshot.unusable().ifPresent(why -> problem("its snapshot is made anew: " + why));
            remove(snapshot.id());
        }
    }

    private void problem(String text) {
        boolean told;
        lock.lock();
        try {
            told = text.equals(lastProblem);
            lastProblem = text;
        } finally {
            lock.unlock();
        }
        if (!told) {
            LOG.log(System.Logger.Level.WARNING, "pool " + template + ": " + text);
        }
    }

    private void remove(SnapshotId id) {
        background.execute(() -> {
            try {
                node.deleteSnapshot(id);
            } catch (AtollException e) {
                LOG.log(System.Logger.Level.INFO, "snapshot " + id + " is left to the next start: " + e.message());
            }
        });
    }
}
