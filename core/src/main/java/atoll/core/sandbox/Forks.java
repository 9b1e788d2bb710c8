package atoll.core.sandbox;

import atoll.core.Caller;
import atoll.core.SandboxId;
import java.util.List;

/** Copies of sandboxes. */
public interface Forks {
    /**
     * Copies of it as it is now: memory, files, and what runs. It goes on untouched, and is paused still if it was paused. The copies
     * are running when this returns, in their order; their contexts have new ids, and can be addressed by those of the source too.
     */
    List<Sandbox> fork(Caller caller, SandboxId id, ForkSandbox request) throws InterruptedException;
}
