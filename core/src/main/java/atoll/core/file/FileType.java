package atoll.core.file;

import java.util.Locale;
import java.util.Optional;

public enum FileType {
    FILE,
    DIRECTORY,
    SYMLINK,
    /** A FIFO, socket or device. */
    OTHER;

    public String text() {
        return name().toLowerCase(Locale.ROOT);
    }

    public static Optional<FileType> of(String text) {
        for (FileType type : values()) {
            if (type.text().equals(text)) {
                return Optional.of(type);
            }
        }
        return Optional.empty();
    }
}
