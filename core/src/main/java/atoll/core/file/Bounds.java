package atoll.core.file;

import atoll.core.AtollException;
import java.util.OptionalInt;

/** What a caller's numbers may be. */
final class Bounds {
    static final int LARGEST_MODE = 07777;

    private Bounds() {}

    static void check(String name, long value, long least, long most) {
        if (value < least || value > most) {
            throw invalid("%s: %d (expected: %d to %d)".formatted(name, value, least, most));
        }
    }

    static void mode(OptionalInt mode) {
        if (mode.isPresent() && (mode.getAsInt() < 0 || mode.getAsInt() > LARGEST_MODE)) {
            throw invalid("mode: %o (expected: 0 to 7777, in octal)".formatted(mode.getAsInt()));
        }
    }

    static AtollException invalid(String message) {
        return AtollException.invalid(message, "Correct the value.");
    }
}
