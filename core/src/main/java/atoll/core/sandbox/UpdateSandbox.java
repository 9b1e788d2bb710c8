package atoll.core.sandbox;

import atoll.core.template.LimitChanges;
import java.util.Map;
import java.util.Optional;

/**
 * What is to change on a live sandbox.
 *
 * @param labels by name: the new value, or empty to take the label away; others stay
 */
public record UpdateSandbox(LimitChanges limits, Map<String, Optional<String>> labels) {
    public UpdateSandbox {
        labels = Map.copyOf(labels);
    }
}
