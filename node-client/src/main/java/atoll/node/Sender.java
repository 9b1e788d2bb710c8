package atoll.node;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * The sending half of a call, by blocking: a message goes out when the connection takes it, so at most about a MiB waits here however slow the other side is. The
 * listener runs on the channel's event loop and only wakes.
 */
abstract class Sender<Q, R> extends ClientCall.Listener<R> {
    /** Bytes that may wait in the channel before a sender does. */
    static final int READY_BYTES = 1 << 20;

    private static final long STALLED_SECONDS = 120;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final ClientCall<Q, R> call;
    private @Nullable Status end;

    Sender(ClientCall<Q, R> call) {
        this.call = call;
    }

    abstract AtollException failure(Status status);

    /** Waits for the connection to take it. Fails as the call did, should it have ended. */
    void send(Q message) throws InterruptedException {
        if (!taken(message)) {
            throw AtollException.internal("the node ended a call before everything was sent", null);
        }
    }

    /** The same for calls that the node may end well before everything was sent; false if it has. */
    boolean taken(Q message) throws InterruptedException {
        lock.lockInterruptibly();
        try {
            long left = TimeUnit.SECONDS.toNanos(STALLED_SECONDS);
            while (end == null && !call.isReady()) {
                if (left <= 0) {
                    throw new AtollException(
                            ErrorCode.NODE_UNAVAILABLE,
                            "the sandbox has taken nothing for %d s".formatted(STALLED_SECONDS),
                            "It, or its node, is stuck or away.",
                            "Try again.");
                }
                left = changed.awaitNanos(left);
            }
            Status ended = end;
            if (ended != null && !ended.isOk()) {
                throw failure(ended);
            }
            if (ended != null) {
                return false;
            }
        } finally {
            lock.unlock();
        }
        call.sendMessage(message);
        return true;
    }

    /** Waits for the end of the call; fails as it did. */
    void awaitEnd() throws InterruptedException {
        lock.lockInterruptibly();
        try {
            while (end == null) {
                changed.await();
            }
            if (!end.isOk()) {
                throw failure(end);
            }
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void onReady() {
        signal();
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
        lock.lock();
        try {
            end = status;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    private void signal() {
        lock.lock();
        try {
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }
}
