package atoll.node;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.execution.OutputReader;
import atoll.core.node.NodeStream;
import atoll.proto.engine.v1.OutputPiece;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/** Calls over the channel to an engine, with their failures in core's words. */
final class Calls {
    private final Channel channel;
    /** Has the channel try to connect again at once. */
    private final Runnable reconnect;

    Calls(Channel channel, Runnable reconnect) {
        this.channel = channel;
        this.reconnect = reconnect;
    }

    <Q, R> R unary(MethodDescriptor<Q, R> method, Q request, String what, Duration deadline) {
        return unary(method, request, what, deadline, Statuses::failure);
    }

    <Q, R> R unary(
            MethodDescriptor<Q, R> method,
            Q request,
            String what,
            Duration deadline,
            BiFunction<Status, String, AtollException> failures) {
        try {
            CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(deadline.toNanos(), TimeUnit.NANOSECONDS);
            return ClientCalls.blockingUnaryCall(channel, method, options, request);
        } catch (StatusRuntimeException e) {
            throw told(failures.apply(e.getStatus(), what));
        }
    }

    /** Without a deadline and without a thread; completes on the channel's event loop. Cancelling the future cancels the call. */
    <Q, R> CompletableFuture<R> later(MethodDescriptor<Q, R> method, Q request, String what) {
        ClientCall<Q, R> call = channel.newCall(method, CallOptions.DEFAULT);
        CompletableFuture<R> done = new CompletableFuture<>();
        call.start(
                new ClientCall.Listener<R>() {
                    private @Nullable R reply;

                    @Override
                    public void onMessage(R message) {
                        reply = message;
                    }

                    @Override
                    public void onClose(Status status, Metadata trailers) {
                        R got = reply;
                        boolean first = (status.isOk() && got != null)
                                ? done.complete(got)
                                : done.completeExceptionally(told(Statuses.failure(status, what)));
                        assert first || done.isDone();
                    }
                },
                new Metadata());
        call.request(2);
        call.sendMessage(request);
        call.halfClose();
        return done;
    }

    <Q, M, T> NodeStream<T> stream(MethodDescriptor<Q, M> method, Q request, String what, Function<M, T> mapping) {
        return CallStream.start(
                channel.newCall(method, CallOptions.DEFAULT),
                request,
                mapping,
                status -> told(Statuses.failure(status, what)));
    }

    /** Raw output, as the engine streams it. */
    <Q> OutputReader output(MethodDescriptor<Q, OutputPiece> method, Q request, String what) {
        NodeStream<OutputReader.Piece> pieces = stream(method, request, what, Wire::piece);
        return new OutputReader() {
            @Override
            public Optional<Piece> next() throws InterruptedException {
                return pieces.next();
            }

            @Override
            public void close() {
                pieces.close();
            }
        };
    }

    /** For calls with a flow of their own. */
    Channel channel() {
        return channel;
    }

    /** Looks at a failure before it is thrown. */
    AtollException told(AtollException failure) {
        if (failure.code() == ErrorCode.NODE_UNAVAILABLE) {
            reconnect.run();
        }
        return failure;
    }
}
