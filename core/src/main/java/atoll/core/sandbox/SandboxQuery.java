package atoll.core.sandbox;

import atoll.core.PageRequest;
import java.util.Map;
import java.util.Optional;

/** Which sandboxes to list; an empty filter takes all. {@code labels} must all be there with these values. */
public record SandboxQuery(
        Optional<SandboxState> state,
        Optional<String> template,
        Optional<String> name,
        Map<String, String> labels,
        PageRequest page) {
    public static final SandboxQuery ALL =
            new SandboxQuery(Optional.empty(), Optional.empty(), Map.of(), PageRequest.FIRST);

    public SandboxQuery {
        labels = Map.copyOf(labels);
    }

    /** Of any name. */
    public SandboxQuery(
            Optional<SandboxState> state, Optional<String> template, Map<String, String> labels, PageRequest page) {
        this(state, template, Optional.empty(), labels, page);
    }
}
