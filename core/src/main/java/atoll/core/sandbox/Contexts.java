package atoll.core.sandbox;

import atoll.core.Caller;
import atoll.core.ContextId;
import atoll.core.SandboxId;
import java.util.List;

/** The stateful interpreters of sandboxes. Several of one sandbox run code at the same time; each runs one piece of code after another. */
public interface Contexts {
    /** Opens one beside those that are there. It is ready for code when this returns. */
    SeenContext create(Caller caller, SandboxId sandbox, CreateContext request);

    /** The oldest first; of a sandbox that has ended those that it had. */
    List<SeenContext> list(Caller caller, SandboxId sandbox);

    SeenContext get(Caller caller, SandboxId sandbox, ContextId id);

    /** Starts its interpreter afresh; what runs in it ends, and what waits for it runs in the new one. */
    SeenContext restart(Caller caller, SandboxId sandbox, ContextId id);

    /** Ends its interpreter and what runs in it. */
    void close(Caller caller, SandboxId sandbox, ContextId id);
}
