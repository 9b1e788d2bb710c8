package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.SandboxId;
import atoll.core.template.LimitChanges;
import java.util.Map;
import java.util.Optional;

/**
 * What is to change on a live sandbox.
 *
 * @param labels by name: the new value, or empty to take the label away; others stay
 * @param name a new name; empty: it keeps the one it has, or none
 * @param lifecycle without a lifetime: that is extended
 */
public record UpdateSandbox(
        LimitChanges limits, Map<String, Optional<String>> labels, Optional<String> name, LifecycleChanges lifecycle) {
    public UpdateSandbox {
        labels = Map.copyOf(labels);
        name.ifPresent(text -> Names.check(text, SandboxId.PREFIX));
        if (lifecycle.lifetime().isPresent()) {
            throw AtollException.invalid(
                    "lifetime_seconds: can't be updated (expected: left out)",
                    "POST …:extend sets how long a sandbox lives from now on.");
        }
    }

    /** Limits and labels only. */
    public UpdateSandbox(LimitChanges limits, Map<String, Optional<String>> labels) {
        this(limits, labels, Optional.empty(), LifecycleChanges.NONE);
    }
}
