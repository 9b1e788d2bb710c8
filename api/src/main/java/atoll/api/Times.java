package atoll.api;

import atoll.core.AtollException;
import java.time.Instant;
import java.time.format.DateTimeParseException;

/** Times in a body or a query. */
final class Times {
    /** Beyond these no store keeps microseconds. */
    private static final Instant EARLIEST = Instant.parse("1970-01-01T00:00:00Z");

    private static final Instant LATEST = Instant.parse("9999-12-31T23:59:59Z");

    private Times() {}

    static Instant parse(String name, String text) {
        try {
            Instant time = Instant.parse(text);
            if (!time.isBefore(EARLIEST) && !time.isAfter(LATEST)) {
                return time;
            }
        } catch (DateTimeParseException e) {
            throw wrong(name, text);
        }
        throw wrong(name, text);
    }

    private static AtollException wrong(String name, String text) {
        return AtollException.invalid(
                "%s: \"%s\" (expected: a time such as 2026-12-31T23:59:59Z)"
                        .formatted(name, text.length() > 64 ? text.substring(0, 64) + "…" : text),
                "Write it as RFC 3339 does, with its offset; a + in a query is %2B.");
    }
}
