package atoll.core.file;

import java.util.Optional;

/**
 * What to read.
 *
 * @param length 0: to the end
 * @param archive packs a folder (or file); then offset and length are 0
 */
public record ReadFile(String path, long offset, long length, Optional<ArchiveFormat> archive) {
    public ReadFile {
        Bounds.check("offset", offset, 0, Long.MAX_VALUE);
        Bounds.check("length", length, 0, Long.MAX_VALUE);
        if (archive.isPresent() && (offset != 0 || length != 0)) {
            throw Bounds.invalid(
                    "offset and length: %d and %d (expected: none with an archive)".formatted(offset, length));
        }
    }

    public static ReadFile whole(String path) {
        return new ReadFile(path, 0, 0, Optional.empty());
    }
}
