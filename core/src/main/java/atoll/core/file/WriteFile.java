package atoll.core.file;

import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;

/**
 * Where the data is to go.
 *
 * @param offset of {@link Mode#AT_OFFSET}
 * @param permissions of a new file
 * @param parents make the folders above it
 * @param archive the data is an archive to be unpacked into the folder {@code path}
 * @param expectedBytes how much will come, where that is known: refused at once if the disk has less
 */
public record WriteFile(
        String path,
        Mode mode,
        long offset,
        OptionalInt permissions,
        boolean parents,
        Optional<ArchiveFormat> archive,
        Map<String, String> attributes,
        OptionalLong expectedBytes) {
    /** What becomes of what is there. */
    public enum Mode {
        /** All at once when everything has come; until then, and if it is broken off, the old content stays. */
        REPLACE("replace"),
        APPEND("append"),
        AT_OFFSET("at_offset"),
        /** Fails where the path is there already. */
        CREATE("create");

        private final String text;

        Mode(String text) {
            this.text = text;
        }

        public String text() {
            return text;
        }

        public static Optional<Mode> of(String text) {
            for (Mode mode : values()) {
                if (mode.text.equals(text)) {
                    return Optional.of(mode);
                }
            }
            return Optional.empty();
        }
    }

    public WriteFile {
        attributes = Map.copyOf(attributes);
        Bounds.mode(permissions);
        Bounds.check("offset", offset, 0, Long.MAX_VALUE);
        if (offset != 0 && mode != Mode.AT_OFFSET) {
            throw Bounds.invalid(
                    "offset: %d with write=%s (expected: only with write=at_offset)".formatted(offset, mode.text()));
        }
    }

    /** A whole file. */
    public static WriteFile replacing(String path) {
        return new WriteFile(
                path, Mode.REPLACE, 0, OptionalInt.empty(), false, Optional.empty(), Map.of(), OptionalLong.empty());
    }
}
