package atoll.core.node;

/** Where a box is in its life. */
public enum BoxState {
    CREATING,
    READY,
    /** It runs, and its agent is being reached again. */
    RECONNECTING,
    ENDED,
    DELETED,
    /** Made without anything that runs in it, for a restore. */
    PREPARED,
    PAUSING,
    /** On disk only. */
    PAUSED,
    RESUMING;

    public boolean isOver() {
        return this == ENDED || this == DELETED;
    }
}
