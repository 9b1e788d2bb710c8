package atoll.core.file;

import java.time.Instant;
import java.util.Locale;
import java.util.Optional;

/**
 * A change that was seen in a watched folder.
 *
 * @param path absolute; of a rename the old one, the new one comes as {@link Kind#CREATE}
 * @param name relative to the watched folder
 */
public record FileEvent(Kind kind, String path, String name, Optional<FileType> fileType, Instant at) {
    /** What happened. */
    public enum Kind {
        /** The first event: from now on nothing is missed. */
        READY,
        CREATE,
        WRITE,
        REMOVE,
        RENAME,
        CHMOD,
        /** Events were lost: look at the folder anew. */
        OVERFLOW;

        public String text() {
            return name().toLowerCase(Locale.ROOT);
        }
    }
}
