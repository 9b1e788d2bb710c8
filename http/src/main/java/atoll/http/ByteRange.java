package atoll.http;

import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** The part of something that a {@code Range} header asks for. */
public record ByteRange(long first, long length) {
    private static final String UNIT = "bytes=";

    /**
     * The part of {@code size} bytes that is meant. Empty: all of it; that is also the answer to several ranges at once and to other units, as the standard allows.
     *
     * @throws UnsatisfiableException when nothing of it is there
     */
    static Optional<ByteRange> parse(@Nullable String header, long size) throws UnsatisfiableException {
        if (header == null || !header.startsWith(UNIT)) {
            return Optional.empty();
        }
        String spec = header.substring(UNIT.length()).strip();
        int dash = spec.indexOf('-');
        if (dash < 0 || spec.indexOf(',') >= 0) {
            return Optional.empty();
        }
        long from = number(spec.substring(0, dash));
        long to = number(spec.substring(dash + 1));
        if (from == MALFORMED || to == MALFORMED || (from == ABSENT && to == ABSENT) || (to >= 0 && to < from)) {
            return Optional.empty();
        }
        if (from == ABSENT) {
            // The last so many bytes.
            from = Math.max(0, size - to);
            to = size - 1;
        }
        if (from >= size) {
            throw new UnsatisfiableException();
        }
        long last = to == ABSENT ? size - 1 : Math.min(to, size - 1);
        return Optional.of(new ByteRange(from, last - from + 1));
    }

    /** The value of {@code Content-Range}. */
    String of(long size) {
        return "bytes %d-%d/%d".formatted(first, first + length - 1, size);
    }

    static final class UnsatisfiableException extends Exception {
        private static final long serialVersionUID = 1L;
    }

    private static final long ABSENT = -1;
    private static final long MALFORMED = -2;

    private static long number(String text) {
        if (text.isEmpty()) {
            return ABSENT;
        }
        for (int i = 0; i < text.length(); i++) {
            if (text.charAt(i) < '0' || text.charAt(i) > '9') {
                return MALFORMED;
            }
        }
        // More digits than any size has.
        return text.length() > 18 ? Long.MAX_VALUE : Long.parseLong(text);
    }
}
