package atoll.core.sandbox;

import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.core.snapshot.SnapshotKind;
import java.util.List;
import java.util.Optional;

/** What carries sandboxes over pauses. */
public interface SandboxLife {
    /**
     * Writes it to disk and frees its memory; it is paused when this returns. What runs in it stands still and stays running on record.
     * Pausing twice is no error. After an error it runs on. {@code DISK_FULL} where there is no room for it.
     *
     * @param keep {@code FILES} to keep nothing else: what runs is lost, and interpreters start anew when they are used again
     */
    Sandbox pause(Caller caller, SandboxId id, SnapshotKind keep) throws InterruptedException;

    /** The same with all that is in it. */
    default Sandbox pause(Caller caller, SandboxId id) throws InterruptedException {
        return pause(caller, id, SnapshotKind.MEMORY);
    }

    /**
     * Goes on with a paused one, where it stood; it is running when this returns. No error for one that runs. Of several calls at once
     * one resumes, and all wait for it. After an error it is still paused.
     *
     * @param lifetime from now on; empty: as it was agreed before. Of one that runs a lifetime that is named counts from now, too
     */
    Sandbox resume(Caller caller, SandboxId id, Optional<Term> lifetime) throws InterruptedException;

    /** Sets how long it lives from now on, longer or shorter than it would have; of a paused one, from its resume on. */
    Sandbox extend(Caller caller, SandboxId id, Term lifetime);

    /** Its lives, the oldest first; also of one that has ended. */
    List<Run> runs(Caller caller, SandboxId id);
}
