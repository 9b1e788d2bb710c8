package atoll.core.process;

import atoll.core.Caller;
import atoll.core.Page;
import atoll.core.SandboxId;
import atoll.core.execution.OutputReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;

/**
 * Programs in sandboxes. They run on their own: no call, reader or connection that ends takes one along, and what they print is kept
 * on the node for whoever asks, also long after their end. Every call sees only processes of the caller's project.
 *
 * <p>What needs the sandbox to run (start, write, signal, resize, the list of all guest processes) fails with {@code SANDBOX_ENDED}
 * once it has ended; records and output stay.
 */
public interface Processes {
    /**
     * Starts a program; it runs when this returns. With the same idempotency key and request, the process of the first call. Fails with
     * {@code PROGRAM_NOT_FOUND}, {@code PERMISSION_DENIED} or {@code INVALID_REQUEST} (unknown user, bad folder) when it can't be started.
     */
    ProcessRecord start(Caller caller, SandboxId sandbox, StartProcess request);

    /** With what it has printed and read so far, as the node says. */
    ProcessRecord get(Caller caller, ProcessRef process);

    /** Newest first. */
    Page<ProcessRecord> list(Caller caller, ProcessQuery query);

    /**
     * Follows one from the event after {@code afterSeq} on: 0 for all that it has said. Any number may follow, each at its own pace; one
     * that has ended is replayed.
     */
    ProcessFeed attach(Caller caller, ProcessRef process, long afterSeq);

    /**
     * Raw bytes from {@code offset} on; with {@code follow}, to the end of a process that still runs. A node that is restarted meanwhile
     * goes unnoticed: no byte is lost or doubled.
     */
    OutputReader read(Caller caller, ProcessRef process, OutputChoice choice, long offset, boolean follow);

    /**
     * Waits for its end, at most so long, and gives all that it printed as text: head and tail of much. If it still runs then, what there
     * is so far.
     */
    ProcessResult collect(Caller caller, ProcessRef process, Duration limit) throws InterruptedException;

    /** Waits for its end, at most so long; returns it as it is then. Costs the node nothing, however many wait. */
    ProcessRecord await(Caller caller, ProcessRef process, Duration limit) throws InterruptedException;

    /**
     * Writes to its input, waiting while the program does not read, at most so long.
     *
     * @param offset where the bytes belong in the input: those that were written already are skipped, so a write can be repeated; a
     *     hole is {@code CONFLICT}. Empty: after all that was written before.
     * @param close ends the input once all of {@code data} is in it; a terminal gets its end-of-file character
     */
    Written write(
            Caller caller, ProcessRef process, OptionalLong offset, ByteBuffer data, boolean close, Duration limit)
            throws InterruptedException;

    /** No error if it has ended. */
    void signal(Caller caller, ProcessRef process, int signal, SignalTarget target);

    /** {@code CONFLICT} for one without a terminal, or that has ended. */
    void resize(Caller caller, ProcessRef process, TerminalSize size);

    /** Kills it and everything that it started, and waits a moment for its end. No error if it has ended. */
    ProcessRecord kill(Caller caller, ProcessRef process) throws InterruptedException;

    /** Every process inside, whoever started it, but for Atoll's own. */
    List<GuestProcess> guestProcesses(Caller caller, SandboxId sandbox);

    /** Signals one of those; {@code PROCESS_NOT_FOUND} if none has that number. */
    void signalGuest(Caller caller, SandboxId sandbox, int pid, int signal);
}
