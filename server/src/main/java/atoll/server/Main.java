package atoll.server;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;

/** Starts the server and runs it until SIGTERM or SIGINT. */
public final class Main {
    private static final int USAGE = 2;
    private static final int FAILED = 1;

    private Main() {}

    public static void main(String[] arguments) throws InterruptedException {
        if (List.of(arguments).contains("--help")) {
            System.out.print(ServerOptions.usage());
            return;
        }
        LogFormat.install();
        ServerOptions options;
        try {
            options = ServerOptions.read(List.of(arguments), System.getenv());
        } catch (IllegalArgumentException | IOException e) {
            System.err.println("atoll-server: " + e.getMessage());
            System.exit(USAGE);
            return;
        }
        AtollServer server;
        try {
            server = AtollServer.start(options);
        } catch (AtollServer.StartFailedException e) {
            System.err.println("atoll-server: " + e.getMessage());
            System.exit(FAILED);
            return;
        }
        stopOnSignal(server);
        new CountDownLatch(1).await();
    }

    private static void stopOnSignal(AtollServer server) {
        var stopped = new AtomicBoolean();
        Runtime.getRuntime().addShutdownHook(Thread.ofPlatform().name("stop").unstarted(() -> {
            if (stopped.compareAndSet(false, true)) {
                server.close();
                // The log is closed by a hook of its own, possibly before this one.
                System.err.println("atoll-server: stopped; sandboxes go on");
            }
        }));
    }
}
