package atoll.core.sandbox;

import java.util.Locale;

/** What becomes of a sandbox when its lifetime is over, or when nobody has used it for its idle time. */
public enum OnTimeout {
    /** It ends. */
    KILL,
    /** It is written to disk, and goes on from there when it is resumed. */
    PAUSE;

    /** As it stands in requests and replies, e.g. {@code pause}. */
    public String text() {
        return name().toLowerCase(Locale.ROOT);
    }
}
