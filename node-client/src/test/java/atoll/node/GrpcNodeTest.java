package atoll.node;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.node.Node;
import atoll.core.testing.FakeNode;
import atoll.core.testing.NodeContract;
import io.grpc.Server;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollIoHandler;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.io.TempDir;

/** The whole of core's contract across a real Unix socket. */
class GrpcNodeTest extends NodeContract {
    @TempDir
    @SuppressWarnings("NullAway.Init") // JUnit sets it before anything else runs.
    private Path folder;

    private @Nullable Server server;
    private final EventLoopGroup loop = new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory());

    @Override
    protected Node node(FakeNode behind) {
        Path socket = folder.resolve("engine.sock");
        try {
            if (server == null) {
                server = NettyServerBuilder.forAddress(new DomainSocketAddress(socket.toFile()))
                        .channelType(EpollServerDomainSocketChannel.class)
                        .bossEventLoopGroup(loop)
                        .workerEventLoopGroup(loop)
                        .executor(Executors.newVirtualThreadPerTaskExecutor())
                        .addService(new FakeEngine(behind))
                        .build()
                        .start();
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        assertThat(Files.exists(socket)).isTrue();
        return GrpcNode.unixSocket(socket);
    }

    @AfterEach
    void stop() throws InterruptedException {
        if (server != null) {
            boolean ended = server.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
            assertThat(ended).isTrue();
        }
        assertThat(loop.shutdownGracefully(0, 1, TimeUnit.SECONDS).awaitUninterruptibly(5, TimeUnit.SECONDS))
                .isTrue();
    }
}
