package atoll.node;

import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollIoHandler;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.netty.shaded.io.netty.util.concurrent.DefaultThreadFactory;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * A channel over a Unix socket with one event loop of its own. Callbacks run on the loop: they only enqueue or wake a thread, and a
 * further executor would cost each message another switch of threads.
 */
record UnixChannel(ManagedChannel channel, EventLoopGroup loop) implements AutoCloseable {
    /**
     * gRPC sets SO_KEEPALIVE on every connection, which Unix sockets don't have: without this each try to connect is a warning in the
     * log. Held here, since the JDK forgets loggers that nobody holds.
     */
    private static final Logger BOOTSTRAP = Logger.getLogger("io.grpc.netty.shaded.io.netty.bootstrap.Bootstrap");

    private static final int LARGEST_MESSAGE = 64 * 1024 * 1024;
    private static final int WINDOW_BYTES = 1024 * 1024;

    static UnixChannel to(Path socket) {
        BOOTSTRAP.setLevel(Level.SEVERE);
        EventLoopGroup loop = new MultiThreadIoEventLoopGroup(
                1, new DefaultThreadFactory("node-client", true), EpollIoHandler.newFactory());
        ManagedChannel channel = NettyChannelBuilder.forAddress(new DomainSocketAddress(socket.toFile()))
                .channelType(EpollDomainSocketChannel.class, DomainSocketAddress.class)
                .eventLoopGroup(loop)
                .directExecutor()
                .usePlaintext()
                .overrideAuthority("localhost")
                .flowControlWindow(WINDOW_BYTES)
                .maxInboundMessageSize(LARGEST_MESSAGE)
                .idleTimeout(365, TimeUnit.DAYS)
                .build();
        return new UnixChannel(channel, loop);
    }

    @Override
    public void close() {
        loop.shutdownGracefully(0, 2, TimeUnit.SECONDS).awaitUninterruptibly(3, TimeUnit.SECONDS);
    }
}
