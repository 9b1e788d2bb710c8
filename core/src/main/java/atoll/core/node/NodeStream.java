package atoll.core.node;

import atoll.core.AtollException;
import java.util.Optional;

/**
 * What a node sends bit by bit. The node holds back what is not taken. For one reader at a time; {@link #close} may come from any
 * thread and ends a waiting {@link #next}.
 */
public interface NodeStream<T> extends AutoCloseable {
    /** Waits for the next item; empty at the end. A broken connection is an {@code AtollException} with {@code NODE_UNAVAILABLE}. */
    Optional<T> next() throws InterruptedException;

    /** Waits until the node has taken the request on, or has refused it, which the next read tells; only where that was asked for. */
    default void awaitAccepted() throws InterruptedException {}

    /** Why the node has refused the request, as the next read will say, if that is known by now; does not wait. */
    default Optional<AtollException> refusal() {
        return Optional.empty();
    }

    @Override
    void close();
}
