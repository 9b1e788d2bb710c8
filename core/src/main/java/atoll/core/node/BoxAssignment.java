package atoll.core.node;

import atoll.core.SandboxId;
import atoll.core.template.Limits;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;

/**
 * The identity that a box gets when it becomes a sandbox, and again when it is resumed.
 *
 * @param deadline when the box ends by itself if nobody says otherwise
 */
public record BoxAssignment(
        SandboxId sandboxId, String hostname, Map<String, String> env, Limits limits, Optional<Instant> deadline) {
    public BoxAssignment {
        env = Map.copyOf(env);
    }

    /** Without a deadline. */
    public BoxAssignment(SandboxId sandboxId, String hostname, Map<String, String> env, Limits limits) {
        this(sandboxId, hostname, env, limits, Optional.empty());
    }
}
