package atoll.core.sandbox;

import atoll.core.store.OnceByKey;
import atoll.core.template.LimitChanges;
import java.util.Map;
import java.util.Optional;

/**
 * A sandbox, as a caller asks for it.
 *
 * @param template its id; without it the one of the language, or the default
 * @param limits that differ from the template's
 * @param env set for everything that runs in it
 * @param main started with it
 */
public record CreateSandbox(
        Optional<String> template,
        Optional<String> language,
        Map<String, String> env,
        Map<String, String> labels,
        LimitChanges limits,
        Optional<CreateMain> main,
        Optional<String> idempotencyKey) {
    public CreateSandbox {
        env = Map.copyOf(env);
        labels = Labels.check(Map.copyOf(labels));
        idempotencyKey.ifPresent(OnceByKey::check);
    }

    /** Without a main process. */
    public CreateSandbox(
            Optional<String> template,
            Optional<String> language,
            Map<String, String> env,
            Map<String, String> labels,
            LimitChanges limits,
            Optional<String> idempotencyKey) {
        this(template, language, env, labels, limits, Optional.empty(), idempotencyKey);
    }
}
