package atoll.core.sandbox;

import java.util.Locale;

/** Why a sandbox ended. */
public enum EndReason {
    /** A caller deleted it. */
    DELETED,
    OUT_OF_MEMORY,
    /** Its main process ended, and was to end it. */
    MAIN_EXITED,
    /** Its inside broke down by itself. */
    CRASHED,
    START_FAILED,
    /** Its time was up: its lifetime, or how long paused sandboxes are kept. */
    EXPIRED,
    /** Nobody had used it for as long as was agreed. */
    IDLE,
    /** Its body was not there any more when the server or the engine came back: the machine was restarted, or someone removed it. */
    LOST;

    /** As it stands in replies, e.g. {@code out_of_memory}. */
    public String text() {
        return name().toLowerCase(Locale.ROOT);
    }
}
