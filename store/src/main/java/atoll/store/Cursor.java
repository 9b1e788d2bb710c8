package atoll.store;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import java.time.Instant;
import java.time.temporal.ChronoUnit;

/** Where a page ended: the time and id of the last that was looked at. */
record Cursor(Instant createdAt, String id) {
    @Override
    public String toString() {
        return Long.toString(Row.micros(createdAt), 36) + "." + id;
    }

    static Cursor parse(String text) {
        int dot = text.indexOf('.');
        try {
            long micros = Long.parseLong(text.substring(0, Math.max(0, dot)), 36);
            return new Cursor(Instant.EPOCH.plus(micros, ChronoUnit.MICROS), text.substring(dot + 1));
        } catch (NumberFormatException e) {
            throw new AtollException(
                    ErrorCode.INVALID_REQUEST,
                    "cursor: \"" + (text.length() > 100 ? text.substring(0, 100) + "…" : text)
                            + "\" (expected: `next` of the page before)",
                    "It is no cursor of this list.",
                    "Leave it out to begin with the newest.",
                    e);
        }
    }
}
