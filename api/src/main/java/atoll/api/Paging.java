package atoll.api;

import atoll.core.PageRequest;
import atoll.http.Exchange;
import java.util.Optional;

/** The query parameters {@code limit} and {@code cursor} of every list. */
final class Paging {
    private Paging() {}

    static PageRequest of(Exchange exchange) {
        long limit = exchange.query("limit", PageRequest.FIRST.limit(), 1, PageRequest.MAX_LIMIT);
        return new PageRequest((int) limit, Optional.ofNullable(exchange.query("cursor")));
    }
}
