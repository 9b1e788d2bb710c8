package atoll.api;

import atoll.core.AtollException;
import java.util.Arrays;
import java.util.function.Function;
import java.util.stream.Collectors;

/** A word that must be one of a few. */
final class Choices {
    private Choices() {}

    /** The value whose text is {@code word}; fails with the list of what is possible. */
    static <T> T of(String name, String word, T[] values, Function<T, String> text) {
        for (T value : values) {
            if (text.apply(value).equals(word)) {
                return value;
            }
        }
        throw AtollException.invalid(
                "%s: \"%s\" (expected: %s)"
                        .formatted(
                                name,
                                word.length() > 64 ? word.substring(0, 64) + "…" : word,
                                Arrays.stream(values).map(text).collect(Collectors.joining(", "))),
                "Correct the value.");
    }
}
