package atoll.core.node;

import atoll.core.ContextId;
import atoll.core.Language;
import java.util.Map;

/** A context to open; an empty {@code cwd} is the template's. */
public record ContextSpec(ContextId id, Language language, String cwd, Map<String, String> env) {
    public ContextSpec {
        env = Map.copyOf(env);
    }

    public static ContextSpec of(ContextId id, Language language) {
        return new ContextSpec(id, language, "", Map.of());
    }
}
