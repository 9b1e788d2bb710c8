package atoll.core.node;

import atoll.core.SandboxId;
import atoll.core.template.Limits;
import java.util.Map;

/** The identity that a started box gets when it becomes a sandbox. */
public record BoxAssignment(SandboxId sandboxId, String hostname, Map<String, String> env, Limits limits) {
    public BoxAssignment {
        env = Map.copyOf(env);
    }
}
