package atoll.core.sandbox;

import atoll.core.PageRequest;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/** Which sandboxes to list; an empty filter takes all. {@code labels} must all be there with these values. */
public record SandboxQuery(
        Set<SandboxState> states,
        Optional<String> template,
        Optional<String> name,
        Map<String, String> labels,
        PageRequest page) {
    public static final SandboxQuery ALL =
            new SandboxQuery(Set.of(), Optional.empty(), Optional.empty(), Map.of(), PageRequest.FIRST);

    public SandboxQuery {
        states = Set.copyOf(states);
        labels = Map.copyOf(labels);
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
