package atoll.http;

import java.io.IOException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.eclipse.jetty.util.Callback;
import org.jspecify.annotations.Nullable;

/** Waits for one write to be taken by the connection. */
final class Written implements Callback {
    private final Semaphore done = new Semaphore(0);
    private volatile @Nullable Throwable failure;

    @Override
    public void succeeded() {
        done.release();
    }

    @Override
    public void failed(Throwable cause) {
        failure = cause;
        done.release();
    }

    @Override
    public InvocationType getInvocationType() {
        return InvocationType.NON_BLOCKING;
    }

    void await(long timeoutNanos) throws IOException, InterruptedException {
        if (!done.tryAcquire(timeoutNanos, TimeUnit.NANOSECONDS)) {
            throw new SlowReaderException();
        }
        Throwable cause = failure;
        if (cause != null) {
            throw new ClientGoneException(cause);
        }
    }
}
