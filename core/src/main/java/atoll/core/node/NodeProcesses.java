package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.ProcessId;
import atoll.core.execution.OutputReader;
import atoll.core.process.GuestProcess;
import atoll.core.process.InputPosition;
import atoll.core.process.OutputChoice;
import atoll.core.process.SignalTarget;
import atoll.core.process.TerminalSize;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;

/**
 * The processes of a node's boxes. Failures are those of {@link Node}, and {@code PERMISSION_DENIED} where the system inside the box
 * refuses.
 */
public interface NodeProcesses {
    /**
     * Starts it, or finds it if it exists. {@code PROGRAM_NOT_FOUND} (also if there is no such box), {@code PERMISSION_DENIED} or
     * {@code INVALID_REQUEST} (unknown user, bad folder) where it can't be started; then nothing of it is kept.
     */
    NodeProcess start(BoxId box, ProcessSpec spec);

    NodeProcess get(BoxId box, ProcessId id);

    /** Of one box, or of all: those that run, and those that ended and are not forgotten. */
    List<HeldProcess> list(Optional<BoxId> box);

    /**
     * Done when the process has ended; costs no thread. Completes exceptionally with an {@code AtollException}, soon, when the node goes
     * away. To be completed on a thread that must not be held up.
     */
    CompletableFuture<NodeProcess> ended(BoxId box, ProcessId id);

    /** What it said after {@code afterSeq}. */
    NodeStream<NodeEvent> attach(BoxId box, ProcessId id, long afterSeq);

    OutputReader read(BoxId box, ProcessId id, OutputChoice choice, long offset, boolean follow);

    /** At most {@link #LARGEST_WRITE} bytes; takes less, or nothing, where the program does not read within the limit. */
    InputPosition write(BoxId box, ProcessId id, OptionalLong offset, ByteBuffer data, boolean close, Duration limit);

    int LARGEST_WRITE = 256 * 1024;

    void signal(BoxId box, ProcessId id, int signal, SignalTarget target);

    void resize(BoxId box, ProcessId id, TerminalSize size);

    List<GuestProcess> guests(BoxId box);

    void signalGuest(BoxId box, int pid, int signal);

    /** These are on record here. With {@code keepSpool} their output stays readable until they are forgotten without it. */
    void forget(List<ProcessId> ids, boolean keepSpool);
}
