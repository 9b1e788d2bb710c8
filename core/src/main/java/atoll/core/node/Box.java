package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.SandboxId;
import atoll.core.sandbox.EndReason;
import atoll.core.template.Limits;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * A sandbox's body, as its node sees it.
 *
 * @param sandboxId set once it was assigned
 * @param warmContexts those that were started with it
 * @param limits those it has now
 * @param end set when it ended
 */
public record Box(
        BoxId id,
        BoxState state,
        Optional<SandboxId> sandboxId,
        Map<String, String> labels,
        List<ContextSpec> warmContexts,
        Optional<Limits> limits,
        Optional<End> end) {
    public Box {
        labels = Map.copyOf(labels);
        warmContexts = List.copyOf(warmContexts);
    }

    /** How it ended; {@code detail} is a sentence for people. */
    public record End(EndReason reason, String detail, Instant at) {}
}
