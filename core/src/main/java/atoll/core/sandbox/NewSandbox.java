package atoll.core.sandbox;

import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.template.Limits;
import java.util.Map;
import java.util.Optional;

/** A sandbox that is to be made, with all that was decided about it. */
public record NewSandbox(
        SandboxId id,
        ProjectId project,
        Limits limits,
        Map<String, String> env,
        Map<String, String> labels,
        Optional<MainProcess> main,
        Optional<String> name,
        Lifecycle lifecycle) {
    public NewSandbox {
        env = Map.copyOf(env);
        labels = Map.copyOf(labels);
    }

    /** The same under another id. */
    NewSandbox as(SandboxId other) {
        return new NewSandbox(other, project, limits, env, labels, main, name, lifecycle);
    }
}
