package atoll.core.sandbox;

import atoll.core.ContextId;
import atoll.core.Language;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;

/**
 * A stateful interpreter in a sandbox.
 *
 * @param isDefault whether calls that name only its language go to it
 * @param cwd where it was started; empty: the template's
 * @param env that it was started with, beside the sandbox's
 * @param origin the one that it is a copy of, by whose id it can be addressed too
 */
public record Context(
        ContextId id,
        ProjectId project,
        SandboxId sandboxId,
        Language language,
        boolean isDefault,
        String cwd,
        Map<String, String> env,
        Optional<ContextId> origin,
        Instant createdAt) {
    public Context {
        env = Map.copyOf(env);
    }

    /** One that is no copy. */
    public Context(
            ContextId id,
            ProjectId project,
            SandboxId sandboxId,
            Language language,
            boolean isDefault,
            String cwd,
            Map<String, String> env,
            Instant createdAt) {
        this(id, project, sandboxId, language, isDefault, cwd, env, Optional.empty(), createdAt);
    }

    /** One that was opened without anything special. */
    public Context(
            ContextId id,
            ProjectId project,
            SandboxId sandboxId,
            Language language,
            boolean isDefault,
            Instant createdAt) {
        this(id, project, sandboxId, language, isDefault, "", Map.of(), createdAt);
    }
}
