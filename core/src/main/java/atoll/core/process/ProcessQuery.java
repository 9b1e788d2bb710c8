package atoll.core.process;

import atoll.core.PageRequest;
import atoll.core.SandboxId;
import java.util.Map;
import java.util.Optional;

/** Which processes to list; an empty filter takes all. {@code labels} must all be there with these values. */
public record ProcessQuery(
        Optional<SandboxId> sandboxId, Optional<Boolean> running, Map<String, String> labels, PageRequest page) {
    public static final ProcessQuery ALL =
            new ProcessQuery(Optional.empty(), Optional.empty(), Map.of(), PageRequest.FIRST);

    public ProcessQuery {
        labels = Map.copyOf(labels);
    }

    public static ProcessQuery in(SandboxId sandbox) {
        return new ProcessQuery(Optional.of(sandbox), Optional.empty(), Map.of(), PageRequest.FIRST);
    }
}
