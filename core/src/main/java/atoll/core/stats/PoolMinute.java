package atoll.core.stats;

import java.time.Instant;
import java.util.Map;

/**
 * One minute of a template's pool.
 *
 * @param at its beginning
 * @param depth what it was to hold, and {@code ready} what it held, when it was last looked at
 * @param hits sandboxes taken from it
 * @param misses those that waited for a start, by its reason
 * @param took from the request for a new sandbox until it was there, hits and misses
 */
public record PoolMinute(Instant at, int depth, int ready, long hits, Map<String, Long> misses, Latency took) {
    public PoolMinute {
        misses = Map.copyOf(misses);
    }
}
