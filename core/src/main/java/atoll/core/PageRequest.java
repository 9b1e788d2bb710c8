package atoll.core;

import java.util.Optional;

/** How many items of a list, and from which cursor on (as {@link Page#next} gave it). */
public record PageRequest(int limit, Optional<String> cursor) {
    public static final int MAX_LIMIT = 1000;
    public static final PageRequest FIRST = new PageRequest(100, Optional.empty());

    public PageRequest {
        if (limit < 1 || limit > MAX_LIMIT) {
            throw AtollException.invalid(
                    "limit: " + limit + " (expected: 1 to " + MAX_LIMIT + ")",
                    "Ask for fewer items and follow `next`.");
        }
    }
}
