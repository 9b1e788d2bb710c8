package atoll.api;

import atoll.core.AtollException;
import atoll.core.PageRequest;
import atoll.core.text.SearchText;
import atoll.http.Exchange;
import java.util.Optional;

/** The query parameters {@code limit} and {@code cursor} of every list. */
final class Paging {
    private Paging() {}

    static PageRequest of(Exchange exchange) {
        long limit = exchange.query("limit", PageRequest.FIRST.limit(), 1, PageRequest.MAX_LIMIT);
        return new PageRequest((int) limit, Optional.ofNullable(exchange.query("cursor")));
    }

    /** The query parameter {@code q} of lists that are searched. */
    static Optional<SearchText> searched(Exchange exchange) {
        return Optional.ofNullable(exchange.query("q")).map(SearchText::new);
    }

    /** The query parameter {@code state} of lists of what runs and ran. */
    static Optional<Boolean> running(Exchange exchange) {
        String state = exchange.query("state");
        return switch (state) {
            case null -> Optional.empty();
            case "running" -> Optional.of(true);
            case "ended" -> Optional.of(false);
            default ->
                throw AtollException.invalid(
                        "state: \"%s\" (expected: running or ended)".formatted(state), "Correct the query parameter.");
        };
    }
}
