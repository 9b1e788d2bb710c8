package atoll.core.template;

import java.time.Instant;
import java.util.Optional;

/** How much a template was used. */
public record TemplateUsage(long executions, Optional<Instant> lastUsedAt) {
    public static final TemplateUsage NONE = new TemplateUsage(0, Optional.empty());

    TemplateUsage plus(long more, Instant at) {
        Optional<Instant> last = lastUsedAt.filter(before -> before.isAfter(at)).or(() -> Optional.of(at));
        return new TemplateUsage(executions + more, last);
    }
}
