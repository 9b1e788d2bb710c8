package atoll.node;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.node.NodePorts;
import atoll.core.port.ListeningPort;
import atoll.core.port.Tunnel;
import atoll.proto.engine.v1.BoxRequest;
import atoll.proto.engine.v1.EngineGrpc;
import atoll.proto.engine.v1.TunnelCall;
import atoll.proto.exec.v1.TunnelEnd;
import atoll.proto.exec.v1.TunnelMessage;
import atoll.proto.exec.v1.TunnelOpen;
import com.google.protobuf.UnsafeByteOperations;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/** The engine's calls for ports. */
final class GrpcPorts implements NodePorts {
    private static final int QUICK_SECONDS = 15;
    private static final int CONNECT_SECONDS = 30;
    /** Messages from inside on their way: each has up to 64 KiB. */
    private static final int WINDOW = 8;

    private final Channel channel;
    private final UnaryOperator<AtollException> noticed;

    GrpcPorts(Channel channel, UnaryOperator<AtollException> noticed) {
        this.channel = channel;
        this.noticed = noticed;
    }

    @Override
    public List<ListeningPort> ports(BoxId box) {
        BoxRequest request = BoxRequest.newBuilder().setBoxId(box.toString()).build();
        try {
            CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(QUICK_SECONDS, TimeUnit.SECONDS);
            return ClientCalls.blockingUnaryCall(channel, EngineGrpc.getListPortsMethod(), options, request)
                    .getPortsList()
                    .stream()
                    .map(port -> new ListeningPort(
                            port.getPort(),
                            port.getAddress(),
                            port.getPid(),
                            port.getCommand(),
                            port.getProcessId().isEmpty() ? Optional.empty() : Optional.of(port.getProcessId())))
                    .toList();
        } catch (StatusRuntimeException e) {
            throw noticed.apply(Statuses.failure(e.getStatus(), "ports"));
        }
    }

    @Override
    public Tunnel tunnel(BoxId box, int port) {
        ClientCall<TunnelCall, TunnelMessage> call = channel.newCall(
                EngineGrpc.getTunnelMethod(), CallOptions.DEFAULT.withOnReadyThreshold(Sender.READY_BYTES));
        var tunnel = new GrpcTunnel(call, port);
        tunnel.start(TunnelCall.newBuilder()
                .setBoxId(box.toString())
                .setMessage(TunnelMessage.newBuilder()
                        .setOpen(TunnelOpen.newBuilder().setPort(port)))
                .build());
        try {
            tunnel.awaitOpened();
            return tunnel;
        } catch (InterruptedException e) {
            tunnel.close();
            Thread.currentThread().interrupt();
            throw GrpcFiles.interrupted();
        } catch (RuntimeException e) {
            tunnel.close();
            throw e;
        }
    }

    private final class GrpcTunnel extends Sender<TunnelCall, TunnelMessage> implements Tunnel {
        private sealed interface Item {
            record Message(TunnelMessage message) implements Item {}

            record End(Status status) implements Item {}
        }

        private final ClientCall<TunnelCall, TunnelMessage> call;
        private final int port;
        private final LinkedBlockingQueue<Item> items = new LinkedBlockingQueue<>();
        private boolean theyEnded;

        GrpcTunnel(ClientCall<TunnelCall, TunnelMessage> call, int port) {
            super(call);
            this.call = call;
            this.port = port;
        }

        void start(TunnelCall open) {
            call.start(this, new Metadata());
            call.request(WINDOW);
            call.sendMessage(open);
        }

        void awaitOpened() throws InterruptedException {
            Item first = items.poll(CONNECT_SECONDS, TimeUnit.SECONDS);
            if (first instanceof Item.Message(TunnelMessage message) && message.hasOpened()) {
                call.request(1);
                return;
            }
            if (first instanceof Item.End(Status status)) {
                throw failure(status);
            }
            throw failure(Status.UNAVAILABLE.withDescription(
                    "the connection was not made within %d s".formatted(CONNECT_SECONDS)));
        }

        @Override
        AtollException failure(Status status) {
            String said = status.getDescription() == null ? "" : status.getDescription();
            // What the engine itself can't reach is UNAVAILABLE too, but then nothing inside has refused.
            if (status.getCode() == Status.Code.UNAVAILABLE && refused(said)) {
                return new AtollException(
                        ErrorCode.PORT_CLOSED,
                        "port %d: nothing listens there: %s".formatted(port, said),
                        "No program in the sandbox accepts connections on that port.",
                        "Start the program, or see /ports for what listens.");
            }
            return noticed.apply(Statuses.failure(status, "port " + port));
        }

        private static boolean refused(String said) {
            String lower = said.toLowerCase(Locale.ROOT);
            return lower.contains("refused") || lower.contains("listens");
        }

        @Override
        public Optional<ByteBuffer> receive() throws InterruptedException {
            while (!theyEnded) {
                switch (items.take()) {
                    case Item.Message(TunnelMessage message) -> {
                        call.request(1);
                        @Nullable ByteBuffer data = taken(message);
                        if (data != null) {
                            return Optional.of(data);
                        }
                    }
                    case Item.End end -> {
                        items.add(end);
                        if (!end.status().isOk()) {
                            throw failure(end.status());
                        }
                        theyEnded = true;
                    }
                }
            }
            return Optional.empty();
        }

        private @Nullable ByteBuffer taken(TunnelMessage message) {
            return switch (message.getMessageCase()) {
                case DATA ->
                    message.getData().isEmpty() ? null : message.getData().asReadOnlyByteBuffer();
                case END -> {
                    theyEnded = true;
                    yield null;
                }
                case OPEN, OPENED, MESSAGE_NOT_SET -> null;
            };
        }

        @Override
        public void send(ByteBuffer piece) throws InterruptedException {
            send(call(TunnelMessage.newBuilder().setData(UnsafeByteOperations.unsafeWrap(piece))));
        }

        @Override
        public void end() {
            call.sendMessage(call(TunnelMessage.newBuilder().setEnd(TunnelEnd.getDefaultInstance())));
        }

        private static TunnelCall call(TunnelMessage.Builder message) {
            return TunnelCall.newBuilder().setMessage(message).build();
        }

        @Override
        public void onMessage(TunnelMessage message) {
            items.add(new Item.Message(message));
        }

        @Override
        public void onClose(Status status, Metadata trailers) {
            items.add(new Item.End(status));
            super.onClose(status, trailers);
        }

        @Override
        public void close() {
            call.cancel("the tunnel was closed", null);
        }
    }
}
