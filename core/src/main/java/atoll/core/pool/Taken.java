package atoll.core.pool;

import atoll.core.node.Box;

/**
 * A box that was taken from a pool.
 *
 * @param from {@code pool}, {@code starting}, or why it was started from nothing: {@code empty}, {@code disabled} or {@code limits}
 */
public record Taken(Box box, String from) {}
