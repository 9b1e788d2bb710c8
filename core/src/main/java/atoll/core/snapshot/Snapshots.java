package atoll.core.snapshot;

import atoll.core.Caller;
import atoll.core.Page;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.sandbox.Sandbox;
import java.io.IOException;
import java.io.InputStream;

/**
 * Moments of sandboxes, on disk. They outlive their sandbox. Beside what calls on sandboxes fail with: {@code SNAPSHOT_NOT_FOUND},
 * {@code SNAPSHOT_UNUSABLE}, {@code DISK_FULL}.
 */
public interface Snapshots {
    /** Writes down what a sandbox is now; it runs on after having stood still for a moment. Also of a paused one, which stays paused. */
    Snapshot create(Caller caller, SandboxId sandbox, CreateSnapshot request) throws InterruptedException;

    Snapshot get(Caller caller, SnapshotId id);

    /** Newest first. */
    Page<Snapshot> list(Caller caller, SnapshotQuery query);

    Snapshot update(Caller caller, SnapshotId id, UpdateSnapshot changes);

    /** Sandboxes that were made from it go on. Deleting one that is not there any more is {@code SNAPSHOT_NOT_FOUND}. */
    void delete(Caller caller, SnapshotId id);

    /**
     * Puts a sandbox back to a snapshot that was made of itself; it is running when this returns, and after an error as it was. What
     * ran in it now, or when the snapshot was made, ends as lost.
     */
    Sandbox rollback(Caller caller, SandboxId sandbox, SnapshotId id) throws InterruptedException;

    /** As one file, for another installation or for later. The caller closes it. */
    InputStream exportFile(Caller caller, SnapshotId id);

    /** Takes such a file, reading {@code data} to its end; needs the scope {@code ADMIN}. */
    Snapshot importFile(Caller caller, ImportSnapshot request, InputStream data) throws IOException;
}
