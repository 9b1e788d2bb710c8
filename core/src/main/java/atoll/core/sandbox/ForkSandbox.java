package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.SandboxId;
import atoll.core.store.OnceByKey;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * Copies of a sandbox, as a caller asks for them.
 *
 * @param count how many, 1 to {@value #MOST}; all are made or none
 * @param env beside the source's; what both have is as it is here
 * @param labels beside the source's; what both have is as it is here
 * @param name only for a single one
 * @param lifecycle where it is to differ from the source's
 */
public record ForkSandbox(
        int count,
        Map<String, String> env,
        Map<String, String> labels,
        Optional<String> name,
        LifecycleChanges lifecycle,
        Optional<String> idempotencyKey) {
    public static final int MOST = 100;

    public ForkSandbox {
        if (count < 1 || count > MOST) {
            throw AtollException.invalid(
                    "count: " + count + " (expected: 1 to " + MOST + ")", "Make more of them with more calls.");
        }
        if (name.isPresent() && count > 1) {
            throw AtollException.invalid(
                    "name: \"" + name.get() + "\" for " + count + " sandboxes (expected: one)",
                    "Names are unique: leave it out, or make one.");
        }
        env = Map.copyOf(env);
        labels = Labels.check(Map.copyOf(labels));
        name.ifPresent(text -> Names.check(text, SandboxId.PREFIX));
        idempotencyKey.ifPresent(OnceByKey::check);
    }

    /** One copy, without anything special. */
    public static ForkSandbox one() {
        return new ForkSandbox(1, Map.of(), Map.of(), Optional.empty(), LifecycleChanges.NONE, Optional.empty());
    }

    /** What tells this request from another, for idempotency keys. */
    public List<?> parts() {
        return List.of(count, new TreeMap<>(env), new TreeMap<>(labels), name, lifecycle);
    }
}
