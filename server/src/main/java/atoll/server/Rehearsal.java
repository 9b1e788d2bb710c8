package atoll.server;

import atoll.store.InstallationSecrets;
import java.io.BufferedInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Has this process practise right after its start, so that the first callers find code that Java has compiled: a second server, with a folder and a port of its
 * own, works for a moment against an engine without sandboxes. It is the same code from the socket to the disk; nothing of it is left afterwards.
 *
 * <p>Its folder holds the engine's socket, {@code engine.sock}, and what the second server writes.
 */
final class Rehearsal implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger("atoll.server");
    private static final int ROUNDS = 60;
    /** On a machine that is busy with better things it ends early. */
    private static final long MOST_NANOS = Duration.ofSeconds(10).toNanos();

    private static final int ANSWER_MILLIS = 5_000;
    private static final Pattern LENGTH = Pattern.compile("content-length: (\\d+)");
    private static final Pattern SANDBOX = Pattern.compile("\"sandbox_id\":\"([^\"]+)\"");

    private final Path folder;

    private Rehearsal(Path folder) {
        this.folder = folder;
    }

    static void begin(Path folder) {
        Thread thread = Thread.ofPlatform().name("rehearsal").daemon().start(new Rehearsal(folder));
        assert thread.isDaemon();
    }

    @Override
    public void run() {
        long begin = System.nanoTime();
        Path data = folder.resolve("data");
        try {
            remove(data);
            int calls = practise(data, begin + MOST_NANOS);
            LOG.info("Rehearsed {} calls in {} ms", calls, (System.nanoTime() - begin) / 1_000_000);
        } catch (AtollServer.StartFailedException | IOException | RuntimeException e) {
            // The first callers wait a few milliseconds longer, which is no reason for more than a line.
            LOG.info("No rehearsal: {}", e.toString());
        } finally {
            try {
                remove(data);
            } catch (IOException e) {
                LOG.info("The folder of the rehearsal is still there: {}", e.toString());
            }
        }
    }

    private int practise(Path data, long deadline) throws AtollServer.StartFailedException, IOException {
        var options = new ServerOptions(
                "127.0.0.1",
                0,
                data,
                folder.resolve("engine.sock"),
                Optional.empty(),
                List.of(),
                1 << 20,
                Map.of(),
                Optional.empty());
        int calls = 0;
        try (AtollServer server = AtollServer.startQuietly(options)) {
            String key = InstallationSecrets.open(data.resolve("secret")).apiKey();
            for (int round = 0; round < ROUNDS && deadline - System.nanoTime() > 0; round++) {
                // A connection for each, as a new caller has.
                try (var client = new Client(server.port(), key)) {
                    String sandbox = client.newSandbox();
                    client.ask(
                            "POST",
                            "/v1/code_exec",
                            "{\"code\":\"x+=1; print(x)\",\"sandbox_id\":\"" + sandbox + "\"}");
                    client.ask(
                            "POST",
                            "/v1/code_exec",
                            "{\"code\":\"print(x)\",\"sandbox_id\":\"" + sandbox + "\",\"stream\":true}");
                    client.ask("DELETE", "/v1/sandboxes/" + sandbox, "");
                    calls += 4;
                }
            }
        }
        return calls;
    }

    private static void remove(Path data) throws IOException {
        if (Files.exists(data)) {
            try (Stream<Path> files = Files.walk(data)) {
                for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(file);
                }
            }
        }
    }

    /** As little as it takes to ask; Java's own client would have to warm up as well. */
    private static final class Client implements AutoCloseable {
        private final Socket socket;
        private final InputStream in;
        private final String key;

        Client(int port, String key) throws IOException {
            this.key = key;
            socket = new Socket(InetAddress.getLoopbackAddress(), port);
            socket.setSoTimeout(ANSWER_MILLIS);
            socket.setTcpNoDelay(true);
            in = new BufferedInputStream(socket.getInputStream());
        }

        String newSandbox() throws IOException {
            String answer = ask("POST", "/v1/code_exec", "{\"code\":\"print(1+1)\",\"language\":\"python\"}");
            Matcher sandbox = SANDBOX.matcher(answer);
            if (!sandbox.find()) {
                throw new IOException("no sandbox: " + answer);
            }
            return sandbox.group(1);
        }

        String ask(String method, String path, String body) throws IOException {
            String request = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key
                    + "\r\nContent-Type: application/json\r\nContent-Length: " + body.length() + "\r\n\r\n" + body;
            socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
            String head = line();
            int length = -1;
            for (String line = line(); !line.isEmpty(); line = line()) {
                Matcher matcher = LENGTH.matcher(line.toLowerCase(Locale.ROOT));
                length = matcher.matches() ? Integer.parseInt(matcher.group(1)) : length;
            }
            if (!head.contains(" 200 ")) {
                throw new IOException(method + " " + path + ": " + head);
            }
            return length >= 0 ? bytes(length) : chunks();
        }

        private String chunks() throws IOException {
            var text = new StringBuilder();
            while (true) {
                int length = Integer.parseInt(line(), 16);
                text.append(bytes(length));
                line();
                if (length == 0) {
                    return text.toString();
                }
            }
        }

        private String bytes(int length) throws IOException {
            return new String(in.readNBytes(length), StandardCharsets.UTF_8);
        }

        private String line() throws IOException {
            var line = new StringBuilder();
            for (int c = in.read(); c != '\n'; c = in.read()) {
                if (c < 0) {
                    throw new EOFException("the answer is cut");
                }
                if (c != '\r') {
                    line.append((char) c);
                }
            }
            return line.toString();
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }
}
