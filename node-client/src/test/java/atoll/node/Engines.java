package atoll.node;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.testing.FakeNode;
import io.grpc.BindableService;
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
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Fake nodes, each behind a real Unix socket. */
final class Engines {
    private final EventLoopGroup loop = new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory());
    private final Map<FakeNode, Path> sockets = new HashMap<>();
    private final Map<FakeNode, Server> servers = new HashMap<>();
    private final List<Server> others = new ArrayList<>();

    GrpcNode node(FakeNode behind, Path folder) {
        Path socket = sockets.computeIfAbsent(behind, _ -> folder.resolve("engine" + sockets.size() + ".sock"));
        Server server = servers.computeIfAbsent(behind, _ -> start(new FakeEngine(behind), socket));
        assertThat(server.isShutdown()).isFalse();
        assertThat(Files.exists(socket)).isTrue();
        return GrpcNode.unixSocket(socket);
    }

    /** The node whose engine is this. */
    GrpcNode node(BindableService engine, Path folder) {
        Path socket = folder.resolve("other" + others.size() + ".sock");
        others.add(start(engine, socket));
        return GrpcNode.unixSocket(socket);
    }

    private Server start(BindableService engine, Path socket) {
        try {
            return NettyServerBuilder.forAddress(new DomainSocketAddress(socket.toFile()))
                    .channelType(EpollServerDomainSocketChannel.class)
                    .bossEventLoopGroup(loop)
                    .workerEventLoopGroup(loop)
                    .executor(Executors.newVirtualThreadPerTaskExecutor())
                    .addService(engine)
                    .build()
                    .start();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    void stop() throws InterruptedException {
        others.addAll(servers.values());
        for (Server server : others) {
            boolean ended = server.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
            assertThat(ended).isTrue();
        }
        assertThat(loop.shutdownGracefully(0, 1, TimeUnit.SECONDS).awaitUninterruptibly(5, TimeUnit.SECONDS))
                .isTrue();
    }
}
