package atoll.core.sandbox;

import atoll.core.PageRequest;
import atoll.core.text.SearchText;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * Which sandboxes to list; an empty filter takes all.
 *
 * @param labels must all be there with these values
 * @param text is in the id, the name, the template, a label as {@code name=value}, or why it ended; has to be looked for, so a page may hold fewer than were asked for, or none, and
 *     the next one goes on from there
 */
public record SandboxQuery(
        Set<SandboxState> states,
        Optional<String> template,
        Optional<String> name,
        Map<String, String> labels,
        Optional<SearchText> text,
        PageRequest page) {
    public static final SandboxQuery ALL =
            new SandboxQuery(Set.of(), Optional.empty(), Optional.empty(), Map.of(), PageRequest.FIRST);

    public SandboxQuery {
        states = Set.copyOf(states);
        labels = Map.copyOf(labels);
    }

    /** With any text. */
    public SandboxQuery(
            Set<SandboxState> states,
            Optional<String> template,
            Optional<String> name,
            Map<String, String> labels,
            PageRequest page) {
        this(states, template, name, labels, Optional.empty(), page);
    }

    /** Of one state, or of any. */
    public SandboxQuery(
            Optional<SandboxState> state,
            Optional<String> template,
            Optional<String> name,
            Map<String, String> labels,
            PageRequest page) {
        this(state.map(Set::of).orElse(Set.of()), template, name, labels, page);
    }

    /** Of any name. */
    public SandboxQuery(
            Optional<SandboxState> state, Optional<String> template, Map<String, String> labels, PageRequest page) {
        this(state, template, Optional.empty(), labels, page);
    }
}
