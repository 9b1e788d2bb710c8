package atoll.core.sandbox;

import atoll.core.Caller;
import atoll.core.Page;
import atoll.core.SandboxId;

/** Sandboxes. */
public interface Sandboxes extends SandboxLife {
    /** Takes one from the template's pool, or starts one, or gets the one of that name. A new one is running when this returns. */
    Created createOrGet(Caller caller, CreateSandbox request) throws InterruptedException;

    /** The same, for who does not want to know which it was. */
    default Sandbox create(Caller caller, CreateSandbox request) throws InterruptedException {
        return createOrGet(caller, request).sandbox();
    }

    /** Of any state; fails for one that never was, was another project's, or is past its retention. */
    Sandbox get(Caller caller, SandboxId id);

    /** Newest first. */
    Page<Sandbox> list(Caller caller, SandboxQuery query);

    /** Changes what may be changed of one that has not ended; new limits hold when this returns, of a paused one once it runs. */
    Sandbox update(Caller caller, SandboxId id, UpdateSandbox changes);

    /** Ends it, whatever state it is in, and returns it as it is then. Never waits for its inside; deleting twice is no error. */
    Sandbox delete(Caller caller, SandboxId id) throws InterruptedException;
}
