package atoll.node;

import atoll.core.AtollException;
import atoll.core.node.NodeStream;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.Function;

/**
 * A server's stream, read by blocking. At most a window of messages are on their way or in the queue: who reads slowly holds back
 * the node, and through it nothing but this stream. The listener runs on the channel's event loop and only enqueues.
 */
final class CallStream<M, T> implements NodeStream<T> {
    static final int WINDOW = 16;

    private sealed interface Item<M> {}

    private record Message<M>(M message) implements Item<M> {}

    private record End<M>(Status status) implements Item<M> {}

    private final ClientCall<?, M> call;
    private final Function<M, T> mapping;
    private final Function<Status, AtollException> failure;
    private final int window;
    /** Messages read since more were last asked for; used by the reader only. */
    private int taken;

    /** Opened by the headers, or by the end where none come. */
    private final CountDownLatch accepted = new CountDownLatch(1);

    private final LinkedBlockingQueue<Item<M>> queue = new LinkedBlockingQueue<>();

    private CallStream(
            ClientCall<?, M> call, Function<M, T> mapping, Function<Status, AtollException> failure, int window) {
        this.window = window;
        this.call = call;
        this.mapping = mapping;
        this.failure = failure;
    }

    static <Q, M, T> CallStream<M, T> start(
            ClientCall<Q, M> call, Q request, Function<M, T> mapping, Function<Status, AtollException> failure) {
        return start(call, request, mapping, failure, WINDOW);
    }

    /** The same with another number of messages on their way, for large or small ones. */
    static <Q, M, T> CallStream<M, T> start(
            ClientCall<Q, M> call,
            Q request,
            Function<M, T> mapping,
            Function<Status, AtollException> failure,
            int window) {
        CallStream<M, T> stream = new CallStream<>(call, mapping, failure, window);
        call.start(stream.new Listener(), new Metadata());
        call.request(window);
        call.sendMessage(request);
        call.halfClose();
        return stream;
    }

    @Override
    public Optional<T> next() throws InterruptedException {
        return switch (queue.take()) {
            case Message<M>(M message) -> {
                taken++;
                // Each request crosses over to the event loop and wakes it, so not for every message.
                if (taken == window / 2) {
                    call.request(taken);
                    taken = 0;
                }
                yield Optional.of(mapping.apply(message));
            }
            case End<M> end -> {
                // For the next read, should there be one.
                queue.add(end);
                if (end.status().isOk()) {
                    yield Optional.empty();
                }
                throw failure.apply(end.status());
            }
        };
    }

    @Override
    public void awaitAccepted() throws InterruptedException {
        accepted.await();
    }

    @Override
    public Optional<AtollException> refusal() {
        return queue.peek() instanceof End<M>(Status status) && !status.isOk()
                ? Optional.of(failure.apply(status))
                : Optional.empty();
    }

    @Override
    public void close() {
        call.cancel("the reader has closed the stream", null);
    }

    private final class Listener extends ClientCall.Listener<M> {
        @Override
        public void onHeaders(Metadata headers) {
            accepted.countDown();
        }

        @Override
        public void onMessage(M message) {
            queue.add(new Message<>(message));
        }

        @Override
        public void onClose(Status status, Metadata trailers) {
            queue.add(new End<>(status));
            accepted.countDown();
        }
    }
}
