package atoll.core.testing;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.ProcessId;
import atoll.core.execution.ExitReason;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.node.BoxState;
import atoll.core.node.HeldProcess;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeProcess;
import atoll.core.node.NodeProcesses;
import atoll.core.node.NodeStream;
import atoll.core.node.ProcessSpec;
import atoll.core.process.GuestProcess;
import atoll.core.process.InputPosition;
import atoll.core.process.OutputChoice;
import atoll.core.process.SignalTarget;
import atoll.core.process.Signals;
import atoll.core.process.TerminalSize;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The processes of a {@link FakeNode}. What they run is one command a line, of {@code bash -c} or of {@code fake LINE…}:
 * {@code print TEXT}, {@code err TEXT}, {@code raw TEXT} (without a newline), {@code drop BYTES} (a gap), {@code env NAME},
 * {@code cat} (copies its input to its end), {@code deaf} (never reads its input, for ever), {@code wait GATE} (until the node's gate
 * is opened), {@code exit CODE}, {@code die SIGNAL}. A program called {@code missing} is not there, a user called {@code nobody-knows}
 * neither, and {@code forbidden} may not be run.
 */
public final class FakeProcesses implements NodeProcesses {
    private static final int PIPE = 64 * 1024;

    private final FakeNode node;
    /** All of this is guarded by the node's lock. */
    private final Map<ProcessId, FakeProcess> processes = new LinkedHashMap<>();

    private final List<Waiting> waits = new ArrayList<>();
    private boolean noBash;
    private int nextPid = 100;
    private int started;
    private int asked;

    private record Waiting(ProcessId id, CompletableFuture<NodeProcess> done) {}

    private static final class FakeProcess {
        final ProcessSpec spec;
        final FakeNode.FakeBox box;
        final int pid;
        final List<NodeEvent> events = new ArrayList<>();
        final Map<StandardStream, Long> printed = new HashMap<>();
        byte[] input = new byte[0];
        int inputRead;
        boolean inputClosed;
        Optional<TerminalSize> terminal;

        @Nullable
        Integer pendingSignal;

        Optional<NodeEvent.Finish> finish = Optional.empty();
        boolean acknowledged;

        FakeProcess(ProcessSpec spec, FakeNode.FakeBox box, int pid) {
            this.spec = spec;
            this.box = box;
            this.pid = pid;
            this.terminal = spec.terminal();
            this.inputClosed = !spec.stdin();
        }

        long printed(StandardStream stream) {
            return printed.getOrDefault(stream, 0L);
        }

        NodeProcess seen() {
            ProcessSpec now = new ProcessSpec(
                    spec.id(),
                    spec.argv(),
                    spec.cwd(),
                    Map.of(),
                    spec.user(),
                    spec.stdin(),
                    spec.timeout(),
                    terminal,
                    spec.labels());
            return new NodeProcess(
                    now,
                    pid,
                    FakeNode.START,
                    finish,
                    input.length,
                    inputClosed,
                    printed(StandardStream.STDOUT),
                    printed(StandardStream.STDERR));
        }
    }

    FakeProcesses(FakeNode node) {
        this.node = node;
    }

    // What tests do to them.

    /** Only {@code sh} is there from now on. */
    public void withoutBash() {
        synchronized (node.lock) {
            noBash = true;
        }
    }

    /** Processes started so far. */
    public int started() {
        synchronized (node.lock) {
            return started;
        }
    }

    /** How often an end was asked for. */
    public int asked() {
        synchronized (node.lock) {
            return asked;
        }
    }

    /** Whether its output can still be read. */
    public boolean remembers(ProcessId id) {
        synchronized (node.lock) {
            return processes.containsKey(id);
        }
    }

    /** Ended ones that nobody has acknowledged. */
    public int unacknowledged() {
        synchronized (node.lock) {
            return (int) processes.values().stream()
                    .filter(process -> process.finish.isPresent() && !process.acknowledged)
                    .count();
        }
    }

    /** The agent has lost it: nobody knows how it ended. */
    public void lose(ProcessId id) {
        synchronized (node.lock) {
            processes.remove(id);
            List<Waiting> broken = waits.stream().filter(w -> w.id.equals(id)).toList();
            waits.removeAll(broken);
            broken.forEach(w -> w.done.completeExceptionally(FakeNode.error(ErrorCode.NOT_FOUND, "no process " + id)));
            node.lock.notifyAll();
        }
    }

    /** It was killed for want of memory. */
    public void outOfMemory(ProcessId id) {
        synchronized (node.lock) {
            finish(process(id), ExitReason.OUT_OF_MEMORY, 0, Signals.KILL, "It needed more than 256 MiB.");
        }
    }

    // What the node does to them, with its lock held.

    int runningIn(BoxId box) {
        return (int) processes.values().stream()
                .filter(p -> p.box.id.equals(box) && p.finish.isEmpty())
                .count();
    }

    void breakWaits() {
        List<Waiting> broken = List.copyOf(waits);
        waits.clear();
        broken.forEach(w -> w.done.completeExceptionally(FakeNode.unavailable()));
    }

    void loseAll() {
        processes.values().removeIf(p -> p.box.state != BoxState.PAUSED);
        breakWaits();
    }

    void endAllIn(FakeNode.FakeBox box, ExitReason reason, String detail) {
        processes.values().stream().filter(p -> p.box == box).forEach(p -> finish(p, reason, 0, 0, detail));
    }

    // The port.

    @Override
    public NodeProcess start(BoxId box, ProcessSpec spec) {
        return node.mutate(() -> {
            FakeProcess there = processes.get(spec.id());
            if (there != null) {
                return there.seen();
            }
            FakeNode.FakeBox in;
            try {
                in = node.running(box);
            } catch (AtollException e) {
                throw e.code() == ErrorCode.NOT_FOUND ? FakeNode.error(ErrorCode.PROGRAM_NOT_FOUND, e.message()) : e;
            }
            check(spec);
            FakeProcess process = new FakeProcess(spec, in, nextPid++);
            processes.put(spec.id(), process);
            started++;
            say(process, new NodeEvent.Started(1, FakeNode.START));
            Thread runner = Thread.ofVirtual().name("fake-" + spec.id()).unstarted(() -> run(process));
            runner.start();
            return process.seen();
        });
    }

    private void check(ProcessSpec spec) {
        String program = spec.argv().getFirst();
        if (program.equals("missing") || (noBash && program.equals("/bin/bash"))) {
            throw FakeNode.error(ErrorCode.PROGRAM_NOT_FOUND, program + ": no such program");
        }
        if (program.equals("forbidden")) {
            throw FakeNode.error(ErrorCode.PERMISSION_DENIED, program + ": permission denied");
        }
        if (spec.user().equals("nobody-knows")) {
            throw FakeNode.error(ErrorCode.INVALID_REQUEST, "unknown user " + spec.user());
        }
    }

    @Override
    public NodeProcess get(BoxId box, ProcessId id) {
        return node.call(() -> process(id).seen());
    }

    /** For what needs the inside of its box, if it still runs. */
    private FakeProcess reached(BoxId box, ProcessId id) {
        FakeProcess process = process(id);
        if (process.finish.isEmpty()) {
            FakeNode.FakeBox in = node.running(box);
            assert in.id.equals(box);
        }
        return process;
    }

    private FakeProcess process(ProcessId id) {
        FakeProcess process = processes.get(id);
        if (process == null) {
            throw FakeNode.error(ErrorCode.NOT_FOUND, "no process " + id);
        }
        return process;
    }

    @Override
    public List<HeldProcess> list(Optional<BoxId> box) {
        return node.call(() -> processes.values().stream()
                .filter(p -> !p.acknowledged)
                .filter(p -> box.map(p.box.id::equals).orElse(true))
                .map(p -> new HeldProcess(p.box.id, p.box.sandbox, p.seen()))
                .toList());
    }

    @Override
    public CompletableFuture<NodeProcess> ended(BoxId box, ProcessId id) {
        CompletableFuture<NodeProcess> done = new CompletableFuture<>();
        try {
            boolean asking = node.call(() -> {
                asked++;
                FakeProcess process = process(id);
                if (process.finish.isPresent()) {
                    return done.complete(process.seen());
                }
                return waits.add(new Waiting(id, done));
            });
            assert asking;
        } catch (AtollException e) {
            done.completeExceptionally(e);
        }
        return done;
    }

    @Override
    public NodeStream<NodeEvent> attach(BoxId box, ProcessId id, long afterSeq) {
        return node.call(() -> {
            FakeProcess process = process(id);
            return node.new FakeStream<>(node.connection) {
                private int position = (int) afterSeq;

                @Override
                Optional<NodeEvent> ready() {
                    return position < process.events.size()
                            ? Optional.of(process.events.get(position++))
                            : Optional.empty();
                }

                @Override
                boolean over() {
                    return process.finish.isPresent();
                }
            };
        });
    }

    @Override
    public OutputReader read(BoxId box, ProcessId id, OutputChoice choice, long offset, boolean follow) {
        NodeStream<NodeEvent> events = attach(box, id, 0);
        return new OutputReader() {
            private long at;
            private long gap;
            private boolean closed;

            @Override
            public Optional<Piece> next() throws InterruptedException {
                while (!closed && (follow || more())) {
                    Optional<NodeEvent> event = events.next();
                    if (event.isEmpty() || event.get() instanceof NodeEvent.Finished) {
                        return Optional.empty();
                    }
                    if (event.get() instanceof NodeEvent.Gap dropped && chosen(dropped.stream())) {
                        gap += Math.max(0, at + dropped.bytes() - Math.max(at, offset));
                        at += dropped.bytes();
                    }
                    if (event.get() instanceof NodeEvent.Output output && chosen(output.stream())) {
                        long from = at;
                        at += output.data().remaining();
                        if (at > offset) {
                            int skip = (int) Math.max(0, offset - from);
                            ByteBuffer data = output.data().duplicate();
                            data.position(data.position() + skip);
                            long before = gap;
                            gap = 0;
                            return Optional.of(new Piece(from + skip, data.slice(), before));
                        }
                    }
                    position++;
                }
                return Optional.empty();
            }

            private int position;

            private boolean more() {
                return node.call(() -> position < process(id).events.size());
            }

            private boolean chosen(StandardStream stream) {
                return switch (choice) {
                    case STDOUT -> stream == StandardStream.STDOUT;
                    case STDERR -> stream == StandardStream.STDERR;
                    case COMBINED -> true;
                };
            }

            @Override
            public void close() {
                closed = true;
                events.close();
            }
        };
    }

    /** Takes what fits into a pipe; the rest, once the program has read. */
    @Override
    public InputPosition write(
            BoxId box, ProcessId id, OptionalLong offset, ByteBuffer data, boolean close, Duration limit) {
        synchronized (node.lock) {
            long end = System.nanoTime() + limit.toNanos();
            byte[] bytes = new byte[data.remaining()];
            data.duplicate().get(bytes);
            FakeProcess first = node.mutate(() -> reached(box, id));
            long at = offset.orElse(first.input.length);
            while (true) {
                FakeProcess process = node.mutate(() -> reached(box, id));
                if (process.finish.isPresent()) {
                    throw FakeNode.error(ErrorCode.CONFLICT, "process " + id + " has ended");
                }
                if (at > process.input.length) {
                    throw FakeNode.error(
                            ErrorCode.CONFLICT, "input at " + at + " (expected: at most " + process.input.length + ")");
                }
                int known = (int) Math.min(bytes.length, process.input.length - at);
                int room = PIPE - (process.input.length - process.inputRead);
                int taken = process.inputClosed ? 0 : Math.min(room, bytes.length - known);
                append(process, bytes, known, taken);
                boolean all = known + taken == bytes.length;
                if (all && close) {
                    process.inputClosed = true;
                }
                node.lock.notifyAll();
                if (all || process.inputClosed || System.nanoTime() >= end) {
                    return new InputPosition(process.input.length, process.inputClosed);
                }
                try {
                    node.lock.wait(Math.clamp((end - System.nanoTime()) / 1_000_000, 1, 1000));
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    throw FakeNode.unavailable();
                }
            }
        }
    }

    private static void append(FakeProcess process, byte[] bytes, int from, int count) {
        byte[] longer = java.util.Arrays.copyOf(process.input, process.input.length + count);
        System.arraycopy(bytes, from, longer, process.input.length, count);
        process.input = longer;
    }

    @Override
    public void signal(BoxId box, ProcessId id, int signal, SignalTarget target) {
        boolean done = node.mutate(() -> {
            FakeProcess process = reached(box, id);
            process.pendingSignal = signal;
            node.lock.notifyAll();
            return true;
        });
        assert done;
    }

    @Override
    public void resize(BoxId box, ProcessId id, TerminalSize size) {
        boolean done = node.mutate(() -> {
            reached(box, id).terminal = Optional.of(size);
            return true;
        });
        assert done;
    }

    @Override
    public List<GuestProcess> guests(BoxId box) {
        return node.call(() -> runningIn(node.running(box))
                .map(p -> new GuestProcess(
                        p.pid,
                        1,
                        1000,
                        "user",
                        p.spec.argv().getFirst(),
                        p.spec.argv(),
                        "S",
                        Duration.ofMillis(12),
                        1 << 20,
                        FakeNode.START,
                        Optional.of(p.spec.id()),
                        Optional.empty()))
                .toList());
    }

    private Stream<FakeProcess> runningIn(FakeNode.FakeBox box) {
        return processes.values().stream().filter(p -> p.box == box && p.finish.isEmpty());
    }

    @Override
    public void signalGuest(BoxId box, int pid, int signal) {
        boolean done = node.mutate(() -> {
            FakeProcess process = runningIn(node.running(box))
                    .filter(p -> p.pid == pid)
                    .findFirst()
                    .orElseThrow(() -> FakeNode.error(ErrorCode.NOT_FOUND, "no process " + pid));
            process.pendingSignal = signal;
            node.lock.notifyAll();
            return true;
        });
        assert done;
    }

    @Override
    public void forget(List<ProcessId> ids, boolean keepSpool) {
        boolean done = node.mutate(() -> {
            ids.forEach(id -> {
                FakeProcess process = processes.get(id);
                if (process != null && process.finish.isPresent()) {
                    process.acknowledged = true;
                    if (!keepSpool) {
                        processes.remove(id);
                    }
                }
            });
            return true;
        });
        assert done;
    }

    // What they do.

    private void run(FakeProcess process) {
        synchronized (node.lock) {
            List<String> argv = process.spec.argv();
            String script = argv.size() == 3 && argv.get(1).equals("-c")
                    ? argv.get(2)
                    : String.join(" ", argv.subList(Math.min(1, argv.size()), argv.size()));
            for (String line : script.split("\n", -1)) {
                String[] words = line.split(" ", 2);
                if (!await(process, () -> true) || !step(process, words[0], words.length > 1 ? words[1] : "")) {
                    return;
                }
            }
            if (await(process, () -> true)) {
                finish(process, ExitReason.EXITED, 0, 0, "");
            }
        }
    }

    /** Dies of the signal that came, if one came and it has not ended yet. */
    private boolean signaled(FakeProcess process) {
        Integer signal = process.pendingSignal;
        if (process.finish.isEmpty() && signal != null) {
            finish(process, ExitReason.EXITED, 0, signal, "");
        }
        return process.finish.isPresent();
    }

    /** One line; false when it was the last. */
    private boolean step(FakeProcess process, String command, String rest) {
        switch (command) {
            case "print" -> print(process, StandardStream.STDOUT, rest + "\n");
            case "err" -> print(process, StandardStream.STDERR, rest + "\n");
            case "raw" -> print(process, StandardStream.STDOUT, rest);
            case "env" ->
                print(
                        process,
                        StandardStream.STDOUT,
                        process.spec.env().getOrDefault(rest, process.box.env.getOrDefault(rest, "")) + "\n");
            case "drop" -> {
                long bytes = Long.parseLong(rest);
                long at = process.printed(StandardStream.STDOUT);
                process.printed.put(StandardStream.STDOUT, at + bytes);
                say(process, new NodeEvent.Gap(process.events.size() + 1L, StandardStream.STDOUT, at, bytes));
            }
            case "cat" -> {
                return cat(process);
            }
            case "deaf" -> {
                return await(process, () -> false);
            }
            case "wait" -> {
                return await(process, () -> node.isOpen(rest));
            }
            case "exit" -> {
                finish(process, ExitReason.EXITED, Integer.parseInt(rest), 0, "");
                return false;
            }
            case "die" -> {
                finish(process, ExitReason.EXITED, 0, Integer.parseInt(rest), "");
                return false;
            }
            default -> {
                print(process, StandardStream.STDERR, command + ": not found\n");
                finish(process, ExitReason.EXITED, 127, 0, "");
                return false;
            }
        }
        return true;
    }

    private boolean cat(FakeProcess process) {
        while (await(process, () -> process.inputRead < process.input.length || process.inputClosed)) {
            if (process.inputRead == process.input.length) {
                return true;
            }
            ByteBuffer data =
                    ByteBuffer.wrap(process.input, process.inputRead, process.input.length - process.inputRead);
            process.inputRead = process.input.length;
            print(process, StandardStream.STDOUT, data.slice());
            node.lock.notifyAll();
        }
        return false;
    }

    private interface Condition {
        boolean holds();
    }

    /** False when it ended while it waited. */
    private boolean await(FakeProcess process, Condition condition) {
        try {
            while (process.finish.isEmpty() && (process.box.isStill() || (!signaled(process) && !condition.holds()))) {
                node.lock.wait();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return process.finish.isEmpty();
    }

    private void print(FakeProcess process, StandardStream stream, String text) {
        print(process, stream, ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)));
    }

    private void print(FakeProcess process, StandardStream stream, ByteBuffer data) {
        StandardStream to = process.terminal.isPresent() ? StandardStream.STDOUT : stream;
        long offset = process.printed(to);
        process.printed.put(to, offset + data.remaining());
        say(process, new NodeEvent.Output(process.events.size() + 1L, to, offset, data));
    }

    private void say(FakeProcess process, NodeEvent event) {
        process.events.add(event);
        node.lock.notifyAll();
    }

    private void finish(FakeProcess process, ExitReason reason, int exitCode, int signal, String detail) {
        if (process.finish.isPresent()) {
            return;
        }
        NodeEvent.Finish finish = new NodeEvent.Finish(
                reason,
                Optional.empty(),
                reason == ExitReason.EXITED && signal == 0 ? OptionalInt.of(exitCode) : OptionalInt.empty(),
                signal == 0 ? OptionalInt.empty() : OptionalInt.of(signal),
                false,
                detail,
                FakeNode.START,
                Duration.ofMillis(5),
                process.printed(StandardStream.STDOUT),
                process.printed(StandardStream.STDERR),
                Optional.empty());
        process.finish = Optional.of(finish);
        say(process, new NodeEvent.Finished(process.events.size() + 1L, finish));
        List<Waiting> done =
                waits.stream().filter(w -> w.id.equals(process.spec.id())).toList();
        waits.removeAll(done);
        done.forEach(w -> w.done.complete(process.seen()));
    }
}
