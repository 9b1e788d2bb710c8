package atoll.core;

import java.util.List;
import java.util.Optional;
import java.util.function.Function;

/** Part of a list, newest first, with the cursor that continues it. */
public record Page<T>(List<T> items, Optional<String> next) {
    public Page {
        items = List.copyOf(items);
    }

    public <R> Page<R> map(Function<? super T, ? extends R> mapping) {
        return new Page<>(items.stream().<R>map(mapping).toList(), next);
    }
}
