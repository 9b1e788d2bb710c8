package atoll.core.stats;

import atoll.core.ServerStatus.PoolStatus;
import java.util.List;
import java.util.OptionalDouble;

/**
 * A pool as it is and as it was.
 *
 * @param hitRate of those who wanted a sandbox, the share that found one waiting, since the server started; empty before the first
 * @param took from the request for a new sandbox until it was there, over the last three hours
 * @param minutes the minutes that were asked for, in which something was seen or done, the oldest first
 */
public record PoolStats(PoolStatus pool, OptionalDouble hitRate, Latency took, List<PoolMinute> minutes) {
    public PoolStats {
        minutes = List.copyOf(minutes);
    }

    static OptionalDouble hitRate(PoolStatus pool) {
        long all = pool.hits()
                + pool.misses().values().stream().mapToLong(Long::longValue).sum();
        return all == 0 ? OptionalDouble.empty() : OptionalDouble.of((double) pool.hits() / all);
    }
}
