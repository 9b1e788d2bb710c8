package atoll.core.snapshot;

import java.util.Locale;

/** Where a snapshot is; {@link #mayBecome} is the table of legal steps. One that could not be made leaves no record. */
public enum SnapshotState {
    /** On record, and the node is being asked. */
    CREATING,
    READY,
    /** Its file is not on the node any more; its record says why. If it is there again, so is the snapshot. */
    LOST;

    public boolean mayBecome(SnapshotState next) {
        return switch (this) {
            case CREATING -> next == READY || next == LOST;
            case READY -> next == LOST;
            case LOST -> next == READY;
        };
    }

    /** As it stands in replies, e.g. {@code ready}. */
    public String text() {
        return name().toLowerCase(Locale.ROOT);
    }
}
