package atoll.core.sandbox;

import java.util.Locale;

/** Where a sandbox is in its life; {@link #mayBecome} is the table of legal steps. */
public enum SandboxState {
    /** Its record is stored, its box is being made or assigned. */
    CREATING,
    RUNNING,
    /** Gone for good; its record keeps the reason. */
    ENDED;

    public boolean mayBecome(SandboxState next) {
        return switch (this) {
            case CREATING -> next == RUNNING || next == ENDED;
            case RUNNING -> next == ENDED;
            case ENDED -> false;
        };
    }

    /** As it stands in replies, e.g. {@code running}. */
    public String text() {
        return name().toLowerCase(Locale.ROOT);
    }
}
