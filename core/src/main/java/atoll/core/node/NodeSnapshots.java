package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.SnapshotId;
import atoll.core.snapshot.SnapshotKind;
import java.io.IOException;
import java.io.InputStream;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Boxes written to disk and brought back to life. Beside the errors of {@link Node}: {@code SANDBOX_PAUSED} for a call that needs the
 * inside of a paused box, {@code SNAPSHOT_NOT_FOUND}, {@code SNAPSHOT_UNUSABLE}, {@code DISK_FULL}.
 */
public interface NodeSnapshots {
    /** A box with nothing in it, for one that is restored later; it stays until it is used or deleted. */
    Box prepareBox(BoxId id, BoxSpec spec);

    /** Returns when it is ready. A failed restore leaves no box behind; the snapshot stays. */
    Box restoreBox(BoxId id, RestoreBox request);

    /**
     * Writes a box to disk and frees its memory; returns when that is safe. It keeps its id, its logs and what runs in it. After an
     * error it runs on. Made again with the same snapshot id it only answers. Of kind {@code FILES} what runs in it is lost at once, and
     * when it is resumed it has no context.
     */
    Box pauseBox(BoxId id, SnapshotId snapshot, SnapshotKind kind);

    /** The same with all that runs in it. */
    default Box pauseBox(BoxId id, SnapshotId snapshot) {
        return pauseBox(id, snapshot, SnapshotKind.MEMORY);
    }

    /** Goes on with a paused box; after an error it is still paused. */
    Box resumeBox(BoxId id, Optional<BoxId> prepared, BoxAssignment assignment);

    /** Puts a box back to a snapshot that was made of itself; after an error it is as it was. */
    Box rollbackBox(BoxId id, SnapshotId snapshot, Optional<BoxId> prepared, BoxAssignment assignment);

    /** When the box ends by itself if nobody says otherwise. */
    void setDeadline(BoxId id, Optional<Instant> deadline);

    /**
     * Writes what a box is at this moment, whole or not at all; it runs on. A paused one: what it was when it was paused, and
     * {@code SANDBOX_PAUSED} if its pause is of the other kind.
     */
    NodeSnapshot createSnapshot(BoxId box, SnapshotId id, SnapshotKind kind, Map<String, String> labels);

    /** Those that are whole, without what paused boxes are. */
    List<NodeSnapshot> snapshots();

    /** No error if it is not there. */
    void deleteSnapshot(SnapshotId id);

    /** As one file. The caller closes it. */
    InputStream exportSnapshot(SnapshotId id);

    /**
     * Takes a file from {@link #exportSnapshot}, reading {@code data} to its end.
     *
     * @param trustedKeys hexadecimal public keys of installations whose snapshots are taken beside those of this one
     */
    NodeSnapshot importSnapshot(SnapshotId id, Map<String, String> labels, List<String> trustedKeys, InputStream data)
            throws IOException;
}
