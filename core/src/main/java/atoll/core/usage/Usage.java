package atoll.core.usage;

import atoll.core.Caller;
import atoll.core.Page;
import atoll.core.SandboxId;
import java.util.Optional;

/** What sandboxes use. */
public interface Usage {
    /** The oldest first. */
    Page<UsageSample> samples(Caller caller, SandboxId sandbox, UsageQuery query);

    /** The newest sample; taken now if there is none yet. Empty for a sandbox that ended before there was one. */
    Optional<UsageSample> current(Caller caller, SandboxId sandbox);
}
