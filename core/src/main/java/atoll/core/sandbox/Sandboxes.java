package atoll.core.sandbox;

import atoll.core.Caller;
import atoll.core.Page;
import atoll.core.SandboxId;

/** Sandboxes. */
public interface Sandboxes {
    /** Takes one from the template's pool, or starts one. It is running when this returns. */
    Sandbox create(Caller caller, CreateSandbox request) throws InterruptedException;

    /** Of any state; fails for one that never was, was another project's, or is past its retention. */
    Sandbox get(Caller caller, SandboxId id);

    /** Newest first. */
    Page<Sandbox> list(Caller caller, SandboxQuery query);

    /** Changes limits and labels of a running one; the new limits hold when this returns. */
    Sandbox update(Caller caller, SandboxId id, UpdateSandbox changes);

    /** Ends it, whatever state it is in, and returns it as it is then. Never waits for its inside; deleting twice is no error. */
    Sandbox delete(Caller caller, SandboxId id) throws InterruptedException;
}
