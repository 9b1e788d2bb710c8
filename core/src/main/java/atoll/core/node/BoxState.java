package atoll.core.node;

/** Where a box is in its life. */
public enum BoxState {
    CREATING,
    READY,
    /** It runs, and its agent is being reached again. */
    RECONNECTING,
    ENDED,
    DELETED;

    public boolean isOver() {
        return this == ENDED || this == DELETED;
    }
}
