package atoll.server;

import atoll.api.NativeApi;
import atoll.api.PrometheusMetrics;
import atoll.compat.e2b.E2bApi;
import atoll.compat.e2b.E2bSettings;
import atoll.core.AtollCore;
import atoll.core.Installation;
import atoll.core.ServerStatus;
import atoll.core.Settings;
import atoll.core.template.Sealing;
import atoll.http.AccessLog;
import atoll.http.HttpServer;
import atoll.http.HttpServerConfig;
import atoll.http.RouteTable;
import atoll.node.GrpcNode;
import atoll.store.FolderFiles;
import atoll.store.InstallationSecrets;
import atoll.store.SqlStore;
import atoll.ui.Dashboard;
import atoll.ui.UiSettings;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.net.BindException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.channels.ServerSocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.InstantSource;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashSet;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Everything of one server, started in this order and closed in the reverse one: the folder's lock, the port, the store, the node, core, HTTP. Lock and port come first: a second
 * server by mistake must fail before it claims the engine from the first.
 */
final class AtollServer implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger("atoll.server");
    private static final Duration ENGINE_POLL = Duration.ofMillis(200);
    private static final Duration ENGINE_REMINDER = Duration.ofSeconds(30);

    /** What the operator can correct: said in one line, without a stack trace. */
    static final class StartFailedException extends Exception {
        private static final long serialVersionUID = 1L;

        StartFailedException(String message, Throwable cause) {
            super(message, cause);
        }
    }

    private interface Closing {
        void close() throws Exception;
    }

    private final Deque<Closing> closings = new ArrayDeque<>();
    private final ServerOptions options;
    private int port;

    private AtollServer(ServerOptions options) {
        this.options = options;
    }

    static AtollServer start(ServerOptions options) throws StartFailedException {
        var server = new AtollServer(options);
        try {
            server.startAll();
            return server;
        } catch (StartFailedException | RuntimeException | Error e) {
            server.close();
            throw e;
        } catch (IOException e) {
            server.close();
            throw new StartFailedException(String.valueOf(e.getMessage()), e);
        }
    }

    private void startAll() throws StartFailedException, IOException {
        Settings settings = settings();
        lock(options.data());
        HttpServerConfig http = HttpServerConfig.defaults()
                .listeningOn(options.host(), options.port())
                .withMaxBodyBytes(Math.max(1, options.maxBodyBytes()));
        ServerSocketChannel channel = bind(http);
        closings.push(channel::close);

        InstallationSecrets secrets = InstallationSecrets.open(options.data().resolve("secret"));
        SqlStore store = SqlStore.sqlite(options.data().resolve("atoll.db"));
        closings.push(store::close);
        GrpcNode node = GrpcNode.unixSocket(options.engineSocket());
        closings.push(node::close);
        var metrics = new PrometheusMetrics();
        AtollCore core = AtollCore.start(
                settings,
                store,
                node,
                InstantSource.system(),
                metrics,
                secrets.derive("sandbox-tokens"),
                new Installation(
                        sealing(secrets), FolderFiles.open(options.data().resolve("templates"))));
        closings.push(core::close);
        core.ensureKey(secrets.apiKey(), "operator");

        RouteTable.Builder routes = RouteTable.builder();
        NativeApi.addTo(routes, core, metrics, Version.TEXT, options.allowedOrigins());
        int bound = channel.socket().getLocalPort();
        E2bApi.addTo(
                routes, core, E2bSettings.of(options.domain().orElse("localhost:" + bound), options.e2bTemplates()));
        Set<String> names = new HashSet<>(options.uiHosts());
        options.domain().ifPresent(names::add);
        var dashboard = new Dashboard(
                routes,
                core,
                UiSettings.of(Version.TEXT, options.host(), bound, names, options.domain(), metrics::coldStartP50),
                NativeApi.errors());
        NativeApi.addTo(routes.under("/ui"), core, dashboard.guard());
        Optional<AccessLog> accessLog = accessLog();
        accessLog.ifPresent(log -> closings.push(log::close));
        var httpServer = new HttpServer(http, routes.build(), NativeApi.errors(), metrics, accessLog);
        httpServer.start(channel);
        closings.push(httpServer::close);
        closings.push(dashboard::close);
        port = httpServer.port();
        LOG.info("Atoll {} listens on http://{}:{}", Version.TEXT, options.host(), port);
        watchEngine(core);
    }

    private static Sealing sealing(InstallationSecrets secrets) {
        return new Sealing() {
            @Override
            public String seal(String secret) {
                return secrets.seal("registries", secret);
            }

            @Override
            public String unseal(String sealed) {
                return secrets.unseal("registries", sealed);
            }
        };
    }

    int port() {
        return port;
    }

    private Settings settings() throws StartFailedException {
        try {
            return Settings.parse(options.settings());
        } catch (RuntimeException e) {
            throw new StartFailedException(String.valueOf(e.getMessage()), e);
        }
    }

    /** Two servers on one folder would write over each other. */
    private void lock(Path data) throws StartFailedException, IOException {
        if (!Files.isDirectory(data)) {
            Files.createDirectories(
                    data, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx--x---")));
        }
        FileChannel channel =
                FileChannel.open(data.resolve("server.lock"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
        closings.push(channel::close);
        FileLock lock;
        try {
            lock = channel.tryLock();
        } catch (OverlappingFileLockException _) {
            lock = null;
        }
        if (lock == null) {
            throw new StartFailedException(
                    "another server runs on %s: stop it, or give this one a folder of its own with --data"
                            .formatted(data),
                    new IOException("server.lock is held"));
        }
    }

    private ServerSocketChannel bind(HttpServerConfig http) throws StartFailedException, IOException {
        try {
            return HttpServer.bind(http);
        } catch (BindException e) {
            throw new StartFailedException(
                    "can't listen on %s:%d (%s): choose another with --port"
                            .formatted(options.host(), options.port(), e.getMessage()),
                    e);
        } catch (java.nio.channels.UnresolvedAddressException e) {
            throw new StartFailedException("--host: \"%s\" is no address of this machine".formatted(options.host()), e);
        }
    }

    private Optional<AccessLog> accessLog() throws IOException {
        if (options.accessLog().isEmpty()) {
            return Optional.empty();
        }
        String target = options.accessLog().get();
        Consumer<String> lines;
        if (target.equals("-")) {
            Logger access = LoggerFactory.getLogger("atoll.access");
            lines = access::info;
        } else {
            var file = new PrintStream(
                    Files.newOutputStream(Path.of(target), StandardOpenOption.CREATE, StandardOpenOption.APPEND),
                    true,
                    StandardCharsets.UTF_8);
            closings.push(file::close);
            lines = file::println;
        }
        return Optional.of(new AccessLog(lines));
    }

    /** Says in the log when the engine is lost and when it is back; core does the work. */
    private void watchEngine(AtollCore core) {
        Thread watcher = Thread.ofVirtual().name("engine-watch").start(() -> {
            try {
                watch(core);
            } catch (InterruptedException _) {
                // The server stops.
            }
        });
        closings.push(watcher::interrupt);
    }

    private void watch(AtollCore core) throws InterruptedException {
        boolean ready = false;
        long lastSaid = 0;
        while (true) {
            ServerStatus status = core.status();
            boolean nowReady = status.nodeConnected() && status.ready();
            if (nowReady && !ready) {
                LOG.info("The engine answers: ready to run code");
                lastSaid = 0;
            } else if (!nowReady && status.problem().isPresent()) {
                long now = System.nanoTime();
                if (ready || lastSaid == 0 || now - lastSaid > ENGINE_REMINDER.toNanos()) {
                    LOG.warn(
                            "The engine at {} can't be reached, trying on: {}",
                            options.engineSocket(),
                            status.problem().get());
                    lastSaid = now;
                }
            }
            ready = nowReady;
            Thread.sleep(ENGINE_POLL);
        }
    }

    /** Running requests get a few seconds; executions and sandboxes go on without the server. */
    @Override
    public void close() {
        while (!closings.isEmpty()) {
            Closing closing = closings.pop();
            try {
                closing.close();
            } catch (IOException | UncheckedIOException e) {
                LOG.warn("While stopping: {}", e.toString());
            } catch (Exception e) {
                LOG.warn("While stopping", e);
            }
        }
    }
}
