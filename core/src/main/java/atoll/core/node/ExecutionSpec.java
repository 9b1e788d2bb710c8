package atoll.core.node;

import atoll.core.ContextId;
import atoll.core.ExecutionId;
import java.time.Duration;
import java.util.Map;

/** Code to run in a context. */
public record ExecutionSpec(
        ExecutionId id, ContextId contextId, String code, Duration timeout, Map<String, String> env) {
    public ExecutionSpec {
        env = Map.copyOf(env);
    }
}
