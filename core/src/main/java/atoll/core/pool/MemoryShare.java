package atoll.core.pool;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The part of the node's memory that all pools together may take. What a pool holds is reckoned, not measured; two pools that ask in
 * the same moment may go over the share by one box.
 */
final class MemoryShare {
    private static final long MB = 1_000_000;
    /** What a started box takes while nobody uses it: measured 20 to 21 MB for one that was restored, 15 for one that was started. */
    static final long STARTED = 25 * MB;
    /** What a box takes in which nothing runs: measured 9 MB. */
    static final long PREPARED = 10 * MB;

    private final int percent;
    private final List<Part> parts = new CopyOnWriteArrayList<>();
    /** Of the node; 0 as long as it is not known: then nothing is bounded. */
    private volatile long total;

    MemoryShare(int percent) {
        this.percent = percent;
    }

    void nodeHas(long bytes) {
        total = bytes;
    }

    /** The part of one pool, which takes {@code least} at its configured depth. */
    Part part(long least) {
        Part part = new Part(least);
        parts.add(part);
        return part;
    }

    /** Its pool is no more. */
    void leave(Part part) {
        boolean was = parts.remove(part);
        assert was;
    }

    /** What one pool holds. */
    final class Part {
        private final long least;
        private final AtomicLong held = new AtomicLong();

        private Part(long least) {
            this.least = least;
        }

        void holds(long bytes) {
            held.set(bytes);
        }

        long held() {
            return held.get();
        }

        /** Whether this pool may take {@code more}; beyond its least it leaves to every other pool what that one's least takes. */
        boolean allows(long more) {
            boolean beyond = held.get() + more > least;
            long others = parts.stream()
                    .filter(part -> part != this)
                    .mapToLong(part -> beyond ? Math.max(part.least, part.held.get()) : part.held.get())
                    .sum();
            return total == 0 || others + held.get() + more <= total / 100 * percent;
        }
    }
}
