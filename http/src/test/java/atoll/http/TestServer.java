package atoll.http;

import java.io.IOException;
import java.time.Duration;
import java.util.Optional;

/** A real server on a free port, with short time limits. */
final class TestServer implements AutoCloseable {
    static final HttpServerConfig CONFIG = HttpServerConfig.defaults()
            .listeningOn("127.0.0.1", 0)
            .withMaxBodyBytes(1 << 20)
            .withTimeouts(
                    Duration.ofMillis(400), Duration.ofMillis(600), Duration.ofMillis(500), Duration.ofMillis(900));

    private final HttpServer server;

    private TestServer(HttpServer server) {
        this.server = server;
    }

    static TestServer start(RouteTable routes) throws IOException {
        var server =
                new HttpServer(CONFIG, routes, failure -> Optional.empty(), RequestObserver.NONE, Optional.empty());
        server.start(HttpServer.bind(CONFIG));
        return new TestServer(server);
    }

    int port() {
        return server.port();
    }

    String url() {
        return "http://127.0.0.1:" + server.port();
    }

    @Override
    public void close() {
        server.close();
    }
}
