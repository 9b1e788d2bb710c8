package atoll.core.event;

import atoll.core.AtollException;
import atoll.core.PageRequest;
import java.util.Optional;
import java.util.Set;

/**
 * Which events to list; an empty filter takes all.
 *
 * @param subject id of what they happened to
 * @param kinds each as it is on record, such as {@code sandbox.ended}
 */
public record EventQuery(Optional<String> subject, Set<String> kinds, Order order, PageRequest page) {
    private static final int MOST_KINDS = 32;
    private static final int MOST_DIGITS = 18;

    /** All, the newest first. */
    public static final EventQuery ALL =
            new EventQuery(Optional.empty(), Set.of(), Order.NEWEST_FIRST, PageRequest.FIRST);

    /** Which of them come first. */
    public enum Order {
        NEWEST_FIRST,
        OLDEST_FIRST
    }

    public EventQuery {
        kinds = Set.copyOf(kinds);
        if (kinds.size() > MOST_KINDS) {
            throw AtollException.invalid(
                    "kind: " + kinds.size() + " kinds (expected: at most " + MOST_KINDS + ")", "Name fewer kinds.");
        }
        page.cursor().filter(cursor -> !isNumber(cursor)).ifPresent(cursor -> {
            throw AtollException.invalid(
                    "cursor: \"" + (cursor.length() > 100 ? cursor.substring(0, 100) + "…" : cursor)
                            + "\" (expected: `next` of the page before, or an event's `cursor`)",
                    "Leave it out to begin at the beginning.");
        });
    }

    public EventQuery of(String newSubject) {
        return new EventQuery(Optional.of(newSubject), kinds, order, page);
    }

    /** The number of the event that the page before ended with; empty for the first page. */
    public Optional<Long> after() {
        return page.cursor().map(Long::valueOf);
    }

    private static boolean isNumber(String cursor) {
        return cursor.length() <= MOST_DIGITS
                && !cursor.isEmpty()
                && cursor.chars().allMatch(c -> c >= '0' && c <= '9');
    }
}
