package atoll.core.sandbox;

import atoll.core.AtollException;
import java.time.Duration;
import java.util.Optional;

/**
 * A length of time, or no bound at all; where a caller may say nothing too, an {@code Optional<Term>} tells the three apart.
 *
 * @param length whole seconds, from 1 second to {@link #LONGEST}; empty for no bound
 */
public record Term(Optional<Duration> length) {
    /** Ten years. */
    public static final Duration LONGEST = Duration.ofDays(3650);

    /** Without bound. */
    public static final Term NONE = new Term(Optional.empty());

    public Term {
        length.ifPresent(time -> {
            if (time.compareTo(Duration.ofSeconds(1)) < 0 || time.compareTo(LONGEST) > 0) {
                throw AtollException.invalid(
                        "time: %s s (expected: 1 to %d s, or none)"
                                .formatted(time.toMillis() / 1000.0, LONGEST.toSeconds()),
                        "Name a length of time in that range.");
            }
        });
    }

    public static Term of(Duration length) {
        return new Term(Optional.of(length));
    }
}
