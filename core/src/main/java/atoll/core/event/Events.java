package atoll.core.event;

import atoll.core.Caller;
import atoll.core.Page;
import atoll.core.SandboxId;

/** What happened in a project, for as long as it is kept. */
public interface Events {
    /** Those of a project; the page's {@code next} is there as long as there are more in the query's order. */
    Page<Event> list(Caller caller, EventQuery query);

    /** The same of one sandbox, whatever subject the query names; fails for one that is not on record. */
    Page<Event> ofSandbox(Caller caller, SandboxId id, EventQuery query);
}
