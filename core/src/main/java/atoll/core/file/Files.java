package atoll.core.file;

import atoll.core.Caller;
import atoll.core.SandboxId;
import java.time.Duration;
import java.util.List;

/**
 * Files inside running sandboxes. {@code user} says whose rights count, by name or number; empty: the template's user. A relative path starts at that user's
 * home.
 *
 * <p>Failures: {@code FILE_NOT_FOUND}, {@code FILE_EXISTS}, {@code FILE_CONFLICT} (a folder where a file was expected, or not empty, or no regular file),
 * {@code PERMISSION_DENIED}, {@code DISK_FULL}, {@code INVALID_REQUEST}; {@code SANDBOX_ENDED} where it does not run.
 */
public interface Files {
    FileReply apply(Caller caller, SandboxId id, String user, FileOperation operation);

    /** Opens it; a missing file and the like fail here. */
    FileReader read(Caller caller, SandboxId id, String user, ReadFile what);

    FileWriter write(Caller caller, SandboxId id, String user, WriteFile what);

    /** Steps in their order, each with its result, whatever became of the others. */
    List<BatchStep.Result> batch(Caller caller, SandboxId id, String user, List<BatchStep> steps, boolean stopOnError)
            throws InterruptedException;

    /** Events from now on; the first is {@link FileEvent.Kind#READY}. */
    FileWatch watch(Caller caller, SandboxId id, String user, String path, boolean recursive)
            throws InterruptedException;

    /** Gathers events to be asked for later, for callers that hold no connection. Nothing is missed from its return on. */
    WatchId startWatch(Caller caller, SandboxId id, String user, String path, boolean recursive)
            throws InterruptedException;

    /** The events after a position (0: from the start), waiting for the first one at most that long. */
    WatchPage poll(Caller caller, SandboxId id, WatchId watch, long after, Duration wait) throws InterruptedException;

    /** The events that no earlier call of this has given; does not wait. For callers that keep no position. */
    WatchPage drain(Caller caller, SandboxId id, WatchId watch) throws InterruptedException;

    /** Ends it; no error if it has ended. */
    void endWatch(Caller caller, SandboxId id, WatchId watch);
}
