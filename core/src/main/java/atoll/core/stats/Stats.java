package atoll.core.stats;

import atoll.core.Caller;
import java.util.List;

/** How much is done here and how fast. All of it is cheap: it may be asked for whenever something has changed. */
public interface Stats {
    Totals totals(Caller caller);

    NodeStats node(Caller caller);

    /** Each pool, with at most so many of its last minutes (up to {@link #MOST_MINUTES}). */
    List<PoolStats> pools(Caller caller, int minutes);

    /** How many minutes are kept. */
    int MOST_MINUTES = PoolHistory.MINUTES;

    /** Tells that something has changed. */
    Changes changes();
}
