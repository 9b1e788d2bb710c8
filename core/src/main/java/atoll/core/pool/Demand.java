package atoll.core.pool;

/**
 * How much was asked for at once in the last minutes: the most that came within two neighbouring seconds, which is how long a pool
 * takes to serve a burst and begin to fill again. Counts are kept per second in a ring; nothing is computed while nobody asks. Not
 * thread-safe.
 */
final class Demand {
    /** For how many seconds a burst is remembered. */
    static final int SECONDS = 300;

    private static final long SECOND = 1_000_000_000L;

    private final int[] counts = new int[SECONDS];
    private final long origin;
    /** Seconds since {@link #origin}; those after it are empty in the ring. */
    private long latest;

    Demand(long nanos) {
        origin = nanos;
    }

    /** One was asked for at this time of {@code System.nanoTime}. */
    void note(long nanos) {
        advance(nanos);
        counts[(int) (latest % SECONDS)]++;
    }

    /** The largest burst that is remembered at this time. */
    int peak(long nanos) {
        advance(nanos);
        int most = 0;
        for (long second = Math.max(0, latest - SECONDS + 1); second <= latest; second++) {
            int before = second == 0 || second == latest - SECONDS + 1 ? 0 : count(second - 1);
            most = Math.max(most, before + count(second));
        }
        return most;
    }

    private int count(long second) {
        return counts[(int) (second % SECONDS)];
    }

    private void advance(long nanos) {
        long now = Math.max(latest, (nanos - origin) / SECOND);
        for (long second = Math.max(latest + 1, now - SECONDS + 1); second <= now; second++) {
            counts[(int) (second % SECONDS)] = 0;
        }
        latest = now;
    }
}
