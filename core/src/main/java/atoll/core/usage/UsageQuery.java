package atoll.core.usage;

import atoll.core.PageRequest;
import java.time.Instant;
import java.util.Optional;

/** Which samples: from the oldest on, both ends included. */
public record UsageQuery(Optional<Instant> from, Optional<Instant> to, PageRequest page) {
    public static final UsageQuery ALL = new UsageQuery(Optional.empty(), Optional.empty(), PageRequest.FIRST);
}
