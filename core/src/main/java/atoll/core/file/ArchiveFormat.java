package atoll.core.file;

import java.util.Optional;

/** How a folder is packed into one stream. */
public enum ArchiveFormat {
    TAR("tar"),
    TAR_GZIP("tar.gz");

    private final String text;

    ArchiveFormat(String text) {
        this.text = text;
    }

    public String text() {
        return text;
    }

    public static Optional<ArchiveFormat> of(String text) {
        for (ArchiveFormat format : values()) {
            if (format.text.equals(text)) {
                return Optional.of(format);
            }
        }
        return Optional.empty();
    }
}
