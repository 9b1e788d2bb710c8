package atoll.core.node;

import atoll.core.ContextId;
import atoll.core.ExecutionId;
import java.time.Duration;
import java.util.Map;

/**
 * Code to run in a context.
 *
 * @param listFiles whether its end is to list the files that it has made or changed
 * @param confirm whether {@link NodeStream#awaitAccepted} is to tell when nothing can overtake it any more
 */
public record ExecutionSpec(
        ExecutionId id,
        ContextId contextId,
        String code,
        Duration timeout,
        Map<String, String> env,
        boolean listFiles,
        boolean confirm) {
    public ExecutionSpec {
        env = Map.copyOf(env);
    }

    public ExecutionSpec(ExecutionId id, ContextId contextId, String code, Duration timeout, Map<String, String> env) {
        this(id, contextId, code, timeout, env, false, false);
    }
}
