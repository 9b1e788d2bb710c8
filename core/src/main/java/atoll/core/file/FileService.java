package atoll.core.file;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.SandboxId;
import atoll.core.node.NodeFiles;
import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.SandboxService;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Executor;
import java.util.function.Function;

/** Files of sandboxes, by the node. Of a path only the length and NUL are looked at here; what it leads to is decided inside. */
public final class FileService implements Files {
    private static final int LONGEST_PATH = 4096;
    private static final int LONGEST_USER = 256;
    /** What a batch may bring back in all: its answer is one message. */
    private static final long MOST_CONTENT = 32L << 20;

    private static final int MOST_STEPS = 10_000;

    private final SandboxService sandboxes;
    private final NodeFiles node;
    private final Watches watches;
    private final Executor background;

    public FileService(SandboxService sandboxes, NodeFiles node, InstantSource clock, Executor background) {
        this.sandboxes = sandboxes;
        this.node = node;
        this.background = background;
        this.watches = new Watches(clock, background);
    }

    private <T> T inside(Caller caller, SandboxId id, Function<LiveSandbox, T> work) {
        LiveSandbox sandbox = sandboxes.requireRunning(caller, id);
        try {
            return work.apply(sandbox);
        } catch (RuntimeException e) {
            throw sandboxes.translated(sandbox, e);
        }
    }

    @Override
    public FileReply apply(Caller caller, SandboxId id, String user, FileOperation operation) {
        return inside(caller, id, sandbox -> apply(sandbox, user, operation));
    }

    private FileReply apply(LiveSandbox sandbox, String user, FileOperation operation) {
        check(user, operation.paths());
        return node.file(sandbox.box(), user, operation);
    }

    @Override
    public FileReader read(Caller caller, SandboxId id, String user, ReadFile what) {
        return inside(caller, id, sandbox -> {
            check(user, List.of(what.path()));
            return new Reader(sandbox, node.readFile(sandbox.box(), user, what));
        });
    }

    @Override
    public FileWriter write(Caller caller, SandboxId id, String user, WriteFile what) {
        return inside(caller, id, sandbox -> {
            check(user, List.of(what.path()));
            return new Writer(sandbox, node.writeFile(sandbox.box(), user, what));
        });
    }

    @Override
    public List<BatchStep.Result> batch(
            Caller caller, SandboxId id, String user, List<BatchStep> steps, boolean stopOnError)
            throws InterruptedException {
        LiveSandbox sandbox = sandboxes.requireRunning(caller, id);
        Bounds.check("operations", steps.size(), 1, MOST_STEPS);
        var results = new ArrayList<BatchStep.Result>(steps.size());
        long content = 0;
        boolean stopped = false;
        for (BatchStep step : steps) {
            BatchStep.Result result =
                    stopped ? new BatchStep.Result.Skipped() : run(sandbox, user, step, MOST_CONTENT - content);
            if (result instanceof BatchStep.Result.Content read) {
                content += read.bytes().remaining();
            }
            stopped |= stopOnError && result instanceof BatchStep.Result.Failed;
            results.add(result);
        }
        return results;
    }

    private BatchStep.Result run(LiveSandbox sandbox, String user, BatchStep step, long contentLeft)
            throws InterruptedException {
        try {
            return switch (step) {
                case BatchStep.Do(FileOperation operation) ->
                    new BatchStep.Result.Done(apply(sandbox, user, operation));
                case BatchStep.Write write -> write(sandbox, user, write);
                case BatchStep.Read read -> read(sandbox, user, read, contentLeft);
            };
        } catch (AtollException e) {
            RuntimeException told = sandboxes.translated(sandbox, e);
            if (!(told instanceof AtollException known) || known.code().fault() == ErrorCode.Fault.OURS) {
                throw told;
            }
            if (known.code() == ErrorCode.SANDBOX_ENDED || known.code() == ErrorCode.NODE_UNAVAILABLE) {
                // Every further step would wait and fail in the same way.
                throw known;
            }
            return new BatchStep.Result.Failed(known);
        }
    }

    private BatchStep.Result write(LiveSandbox sandbox, String user, BatchStep.Write step) throws InterruptedException {
        check(user, List.of(step.file().path()));
        try (FileWriter writer = node.writeFile(sandbox.box(), user, step.file())) {
            ByteBuffer rest = step.content().duplicate();
            while (rest.hasRemaining()) {
                int size = Math.min(rest.remaining(), FileWriter.LARGEST_PIECE);
                writer.write(rest.slice(rest.position(), size));
                rest.position(rest.position() + size);
            }
            return new BatchStep.Result.Written(writer.commit());
        }
    }

    private BatchStep.Result read(LiveSandbox sandbox, String user, BatchStep.Read step, long contentLeft)
            throws InterruptedException {
        check(user, List.of(step.path()));
        long most = Math.min(step.maxBytes(), contentLeft);
        try (FileReader reader = node.readFile(sandbox.box(), user, ReadFile.whole(step.path()))) {
            long size = reader.file().size();
            if (size > most) {
                throw new AtollException(
                        ErrorCode.REQUEST_TOO_LARGE,
                        "path: \"%s\" has %d bytes (expected: at most %d)".formatted(step.path(), size, most),
                        "A batch brings back %d bytes in all, and max_bytes of one file.".formatted(MOST_CONTENT),
                        "Read it by itself, as a stream.");
            }
            ByteBuffer bytes = ByteBuffer.allocate((int) size);
            Optional<ByteBuffer> piece = reader.next();
            while (piece.isPresent()) {
                bytes = room(bytes, piece.get().remaining());
                bytes.put(piece.get());
                piece = reader.next();
            }
            return new BatchStep.Result.Content(reader.file(), bytes.flip());
        }
    }

    /** For files whose size says nothing, like those of /proc. */
    private static ByteBuffer room(ByteBuffer bytes, int wanted) {
        if (bytes.remaining() >= wanted) {
            return bytes;
        }
        int capacity = Math.max(bytes.position() + wanted, 2 * bytes.capacity());
        if (capacity > 2 * BatchStep.Read.MOST) {
            throw new AtollException(
                    ErrorCode.REQUEST_TOO_LARGE, "the file is larger than it said", "", "Read it as a stream.");
        }
        return ByteBuffer.allocate(capacity).put(bytes.flip());
    }

    @Override
    public FileWatch watch(Caller caller, SandboxId id, String user, String path, boolean recursive)
            throws InterruptedException {
        return new WatchedFolder.Follower(opened(caller, id, user, path, recursive));
    }

    private WatchedFolder opened(Caller caller, SandboxId id, String user, String path, boolean recursive)
            throws InterruptedException {
        LiveSandbox sandbox = sandboxes.requireRunning(caller, id);
        check(user, List.of(path));
        return WatchedFolder.open(
                () -> node.watchFiles(sandbox.box(), user, path, recursive),
                () -> sandbox.sandbox().state().standsStill(),
                e -> sandboxes.translated(sandbox, e),
                background);
    }

    @Override
    public WatchId startWatch(Caller caller, SandboxId id, String user, String path, boolean recursive)
            throws InterruptedException {
        LiveSandbox sandbox = sandboxes.requireRunning(caller, id);
        watches.checkRoom(sandbox.id());
        return watches.add(sandbox.id(), opened(caller, id, user, path, recursive));
    }

    @Override
    public WatchPage poll(Caller caller, SandboxId id, WatchId watch, long after, Duration wait)
            throws InterruptedException {
        LiveSandbox sandbox = sandboxes.requireRunning(caller, id);
        Bounds.check("after", after, 0, Long.MAX_VALUE);
        return watches.find(sandbox.id(), watch).page(after, wait);
    }

    @Override
    public WatchPage drain(Caller caller, SandboxId id, WatchId watch) throws InterruptedException {
        LiveSandbox sandbox = sandboxes.requireRunning(caller, id);
        return watches.find(sandbox.id(), watch).drain();
    }

    @Override
    public void endWatch(Caller caller, SandboxId id, WatchId watch) {
        watches.end(sandboxes.requireRunning(caller, id).id(), watch);
    }

    private static void check(String user, List<String> paths) {
        if (user.length() > LONGEST_USER || user.indexOf('\0') >= 0) {
            throw AtollException.invalid(
                    "user: a name of %d characters (expected: at most %d, without NUL)"
                            .formatted(user.length(), LONGEST_USER),
                    "Name a user of the sandbox, or leave it out.");
        }
        for (String path : paths) {
            if (path.isEmpty()) {
                throw AtollException.invalid("path: \"\" (expected: a path)", "Name a file or folder.");
            }
            if (path.indexOf('\0') >= 0) {
                throw AtollException.invalid(
                        "path: \"%s\" holds NUL (expected: a path)".formatted(shown(path)), "Correct the path.");
            }
            if (path.length() > LONGEST_PATH || path.getBytes(StandardCharsets.UTF_8).length > LONGEST_PATH) {
                throw AtollException.invalid(
                        "path: \"%s\" is too long (expected: at most %d bytes)".formatted(shown(path), LONGEST_PATH),
                        "Use a shorter path.");
            }
        }
    }

    private static String shown(String path) {
        String start = path.length() > 64 ? path.substring(0, 64) + "…" : path;
        return start.replaceAll("\\p{Cntrl}", "\uFFFD");
    }

    /** Failures on the way, in the words of callers. */
    private final class Reader implements FileReader {
        private final LiveSandbox sandbox;
        private final FileReader reader;

        Reader(LiveSandbox sandbox, FileReader reader) {
            this.sandbox = sandbox;
            this.reader = reader;
        }

        @Override
        public FileStat file() {
            return reader.file();
        }

        @Override
        public Optional<ByteBuffer> next() throws InterruptedException {
            sandboxes.touch(sandbox);
            try {
                return reader.next();
            } catch (AtollException e) {
                throw sandboxes.translated(sandbox, e);
            }
        }

        @Override
        public void close() {
            reader.close();
        }
    }

    private final class Writer implements FileWriter {
        private final LiveSandbox sandbox;
        private final FileWriter writer;

        Writer(LiveSandbox sandbox, FileWriter writer) {
            this.sandbox = sandbox;
            this.writer = writer;
        }

        @Override
        public void write(ByteBuffer piece) throws InterruptedException {
            sandboxes.touch(sandbox);
            try {
                writer.write(piece);
            } catch (AtollException e) {
                throw sandboxes.translated(sandbox, e);
            }
        }

        @Override
        public WrittenFile commit() throws InterruptedException {
            try {
                return writer.commit();
            } catch (AtollException e) {
                throw sandboxes.translated(sandbox, e);
            }
        }

        @Override
        public void close() {
            writer.close();
        }
    }
}
