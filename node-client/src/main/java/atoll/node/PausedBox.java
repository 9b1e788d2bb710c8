package atoll.node;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;

/**
 * That a call was refused because its box is paused. It is said in a trailer, which is not at hand where statuses become exceptions, so this travels there as the
 * status's cause.
 */
final class PausedBox extends Exception {
    private static final long serialVersionUID = 1;

    static final Metadata.Key<String> STATE = Metadata.Key.of("atoll-box-state", Metadata.ASCII_STRING_MARSHALLER);

    private PausedBox() {
        super("the box is paused", null, false, false);
    }

    static boolean isCauseOf(Status status) {
        return status.getCause() instanceof PausedBox;
    }

    /** Puts it into the statuses of a channel's calls. */
    static final class Noticed implements ClientInterceptor {
        @Override
        public <Q, R> ClientCall<Q, R> interceptCall(MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
            return new SimpleForwardingClientCall<>(next.newCall(method, options)) {
                @Override
                public void start(Listener<R> listener, Metadata headers) {
                    super.start(
                            new SimpleForwardingClientCallListener<>(listener) {
                                @Override
                                public void onClose(Status status, Metadata trailers) {
                                    super.onClose(marked(status, trailers), trailers);
                                }
                            },
                            headers);
                }
            };
        }

        private static Status marked(Status status, Metadata trailers) {
            boolean paused =
                    status.getCode() == Status.Code.FAILED_PRECONDITION && "paused".equals(trailers.get(STATE));
            return paused ? status.withCause(new PausedBox()) : status;
        }
    }
}
