package atoll.core.node;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * The events of one execution or process, over as many streams as it takes: when one breaks it is taken up again after the last event
 * seen, so neither a lost nor a doubled event is passed on. For one thread at a time, but for {@link #stop}.
 */
public final class EventFollower {
    /** Opens the stream of the events after one. */
    @FunctionalInterface
    public interface Source {
        NodeStream<NodeEvent> openAfter(long seq);

        /** Asked when a stream ended without a last event: whether that had been seen before, so that no more comes. */
        default boolean isOver() {
            return false;
        }
    }

    private final String what;
    private final PatientNode node;
    private final Source source;
    private long lastSeq;
    private volatile @Nullable NodeStream<NodeEvent> stream;
    private volatile boolean stopped;

    /** Follows {@code what}, as messages call it. */
    public EventFollower(String what, PatientNode node, long afterSeq, Source source) {
        this.what = what;
        this.node = node;
        this.source = source;
        this.lastSeq = afterSeq;
    }

    /** Asks the node for the stream, before anyone reads from it. */
    public void begin() {
        try {
            stream = source.openAfter(lastSeq);
        } catch (AtollException e) {
            // The first read tries again, and tells the caller if that fails too.
            stream = null;
        }
    }

    /** Asks the node for the stream, and waits until it has taken the request on. A node that is away is no reason to wait. */
    public void beginAccepted() throws InterruptedException {
        begin();
        NodeStream<NodeEvent> open = stream;
        if (open != null) {
            open.awaitAccepted();
        }
    }

    public long lastSeq() {
        return lastSeq;
    }

    /**
     * Waits for the next event; empty once it was stopped, and where no more comes. Not to be called after {@link NodeEvent.Finished}. Fails with {@code NODE_UNAVAILABLE} when the node stays
     * away for longer than is waited for it, and at once with what else the node says.
     */
    public Optional<NodeEvent> next() throws InterruptedException {
        long start = System.nanoTime();
        for (int tries = 0; !stopped; tries++) {
            try {
                NodeStream<NodeEvent> open = stream;
                if (open == null) {
                    open = source.openAfter(lastSeq);
                    stream = open;
                    if (stopped) {
                        break;
                    }
                }
                Optional<NodeEvent> event = open.next();
                while (event.isPresent() && isOld(event.get())) {
                    event = open.next();
                }
                if (event.isPresent()) {
                    return Optional.of(taken(event.get()));
                }
                // Ended without its last event: the engine went away politely.
                close();
                if (source.isOver()) {
                    break;
                }
            } catch (AtollException e) {
                close();
                if (stopped) {
                    break;
                }
                if (e.code() != ErrorCode.NODE_UNAVAILABLE) {
                    throw e;
                }
            }
            if (!node.pause(tries, start)) {
                if (Thread.interrupted()) {
                    throw new InterruptedException();
                }
                node.requireOwned();
                throw new AtollException(
                        ErrorCode.NODE_UNAVAILABLE,
                        what + " could not be followed: the node has been away for too long",
                        "The engine does not answer.",
                        "Ask for it again later; `./atoll doctor` checks the machine.");
            }
        }
        close();
        return Optional.empty();
    }

    private boolean isOld(NodeEvent event) {
        return event.seq() <= lastSeq && !(event instanceof NodeEvent.Finished);
    }

    private NodeEvent taken(NodeEvent event) {
        lastSeq = event.seq();
        if (event instanceof NodeEvent.Finished) {
            // It ends by itself after its last event; to cancel it would cost a frame each way.
            stream = null;
        }
        return event;
    }

    /** Wakes whoever waits in {@link #next}; from any thread. */
    public void stop() {
        stopped = true;
        NodeStream<NodeEvent> open = stream;
        if (open != null) {
            open.close();
        }
    }

    /** Ends the stream, if one is open. */
    public void close() {
        NodeStream<NodeEvent> open = stream;
        if (open != null) {
            open.close();
            stream = null;
        }
    }
}
