package atoll.store;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;

/** Debian's PostgreSQL on a free loopback port, with its data in a folder that goes with it. It refuses to run as root, so it runs as nobody there. */
final class PostgresqlServer implements AutoCloseable {
    static final String USER = "atoll";
    private static final Path VERSIONS = Path.of("/usr/lib/postgresql");

    private final Path folder;
    private final Path binaries;
    private final int port;
    private final AtomicInteger databases = new AtomicInteger();

    private PostgresqlServer(Path folder, Path binaries, int port) {
        this.folder = folder;
        this.binaries = binaries;
        this.port = port;
    }

    static PostgresqlServer start() {
        try {
            Path folder = Files.createTempDirectory("atoll-postgresql-");
            PostgresqlServer server = new PostgresqlServer(folder, binaries(), freePort());
            server.begin();
            return server;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static Path binaries() throws IOException {
        if (Files.isDirectory(VERSIONS)) {
            try (Stream<Path> versions = Files.list(VERSIONS)) {
                return versions.map(version -> version.resolve("bin"))
                        .filter(bin -> Files.isExecutable(bin.resolve("initdb")))
                        .max(Comparator.comparing(Path::toString))
                        .orElseThrow(PostgresqlServer::missing);
            }
        }
        throw missing();
    }

    private static IllegalStateException missing() {
        return new IllegalStateException("PostgreSQL is not installed (expected: " + VERSIONS
                + "/<version>/bin). Install it with: apt-get install postgresql");
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    private void begin() throws IOException {
        Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxrwxrwx"));
        run("initdb", "-D", data(), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync");
        String options = "-p " + port + " -c listen_addresses=127.0.0.1 -c unix_socket_directories=" + folder
                + " -c fsync=off -c shared_buffers=16MB";
        run(
                "pg_ctl",
                "-D",
                data(),
                "-w",
                "-t",
                "60",
                "-l",
                folder.resolve("log").toString(),
                "-o",
                options,
                "start");
    }

    private String data() {
        return folder.resolve("data").toString();
    }

    private void run(String program, String... arguments) throws IOException {
        List<String> command = new ArrayList<>();
        if ("root".equals(System.getProperty("user.name"))) {
            command.addAll(List.of("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"));
        }
        command.add(binaries.resolve(program).toString());
        command.addAll(List.of(arguments));
        // To a file, not a pipe: the server inherits it, and a pipe would never end.
        Path said = folder.resolve(program + ".out");
        Process process = new ProcessBuilder(command)
                .directory(folder.toFile())
                .redirectErrorStream(true)
                .redirectOutput(said.toFile())
                .start();
        try {
            if (!process.waitFor(120, TimeUnit.SECONDS) || process.exitValue() != 0) {
                throw new IllegalStateException(command + " failed:\n" + Files.readString(said));
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }

    /** The URL of a database that nobody has used. */
    String freshDatabase() throws SQLException {
        String name = "store" + databases.incrementAndGet();
        try (Connection connection = DriverManager.getConnection(url("postgres"), USER, "")) {
            Dialect.execute(connection, "create database " + name);
        }
        return url(name);
    }

    private String url(String database) {
        return "jdbc:postgresql://127.0.0.1:" + port + "/" + database;
    }

    @Override
    public void close() {
        try {
            run("pg_ctl", "-D", data(), "-m", "immediate", "-w", "stop");
            try (Stream<Path> files = Files.walk(folder)) {
                for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(file);
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
