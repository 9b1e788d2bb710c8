package atoll.core;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.Function;

/** Part of a list, newest first, with the cursor that continues it. */
public record Page<T>(List<T> items, Optional<String> next) {
    public Page {
        items = List.copyOf(items);
    }

    /** The whole of a list that is known to be short, page by page. */
    public static <T> List<T> all(Function<PageRequest, Page<T>> list) {
        var all = new ArrayList<T>();
        Optional<String> cursor = Optional.empty();
        do {
            Page<T> page = list.apply(new PageRequest(PageRequest.MAX_LIMIT, cursor));
            all.addAll(page.items());
            cursor = page.next();
        } while (cursor.isPresent());
        return all;
    }

    public <R> Page<R> map(Function<? super T, ? extends R> mapping) {
        return new Page<>(items.stream().<R>map(mapping).toList(), next);
    }
}
