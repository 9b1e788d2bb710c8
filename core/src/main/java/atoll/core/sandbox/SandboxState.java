package atoll.core.sandbox;

import java.util.Locale;

/** Where a sandbox is in its life; {@link #mayBecome} is the table of legal steps. */
public enum SandboxState {
    /** Its record is stored, its box is being made or assigned. */
    CREATING,
    RUNNING,
    /** It is to be written to disk, or is being written. */
    PAUSING,
    /** It is on disk only. */
    PAUSED,
    /** It is to be brought back from disk: from its pause, or to a snapshot of an earlier moment. */
    RESUMING,
    /** Gone for good; its record keeps the reason. */
    ENDED;

    public boolean mayBecome(SandboxState next) {
        return switch (this) {
            case CREATING -> next == RUNNING || next == ENDED;
            case RUNNING -> next == PAUSING || next == RESUMING || next == ENDED;
            case PAUSING -> next == PAUSED || next == RUNNING || next == ENDED;
            case PAUSED -> next == RESUMING || next == ENDED;
            case RESUMING -> next == RUNNING || next == PAUSED || next == ENDED;
            case ENDED -> false;
        };
    }

    /** Whether nothing in it moves, or may not. */
    public boolean standsStill() {
        return switch (this) {
            case PAUSING, PAUSED, RESUMING -> true;
            case CREATING, RUNNING, ENDED -> false;
        };
    }

    /** As it stands in replies, e.g. {@code running}. */
    public String text() {
        return name().toLowerCase(Locale.ROOT);
    }
}
