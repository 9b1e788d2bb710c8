package atoll.core.testing;

/** A call of a {@link FakeNode} that tests can step into. */
public enum FakeCall {
    LIST_BOXES,
    ASSIGN_BOX,
    DELETE_BOX,
    PREPARE_BOX,
    RESTORE_BOX,
    PAUSE_BOX,
    RESUME_BOX,
    ROLLBACK_BOX,
    SET_DEADLINE,
    CREATE_SNAPSHOT,
    DELETE_SNAPSHOT,
    LIST_SNAPSHOTS,
    EXPORT_SNAPSHOT,
    IMPORT_SNAPSHOT;

    /** Where in it. */
    public enum Step {
        /** Nothing has happened yet. */
        BEFORE,
        /** It is under way, and a failure undoes it: a box is {@code PAUSING} or {@code RESUMING}. */
        MIDWAY,
        /** It has taken effect, and a failure is that of a lost answer. */
        AFTER
    }
}
