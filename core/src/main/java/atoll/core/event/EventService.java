package atoll.core.event;

import atoll.core.Caller;
import atoll.core.Page;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.sandbox.Sandboxes;
import atoll.core.store.Store;

/** Events as the store has them. */
public final class EventService implements Events {
    private final Store store;
    private final Sandboxes sandboxes;

    public EventService(Store store, Sandboxes sandboxes) {
        this.store = store;
        this.sandboxes = sandboxes;
    }

    @Override
    public Page<Event> list(Caller caller, EventQuery query) {
        caller.require(Scope.READ);
        return store.events(caller.project(), query);
    }

    @Override
    public Page<Event> ofSandbox(Caller caller, SandboxId id, EventQuery query) {
        return list(caller, query.of(sandboxes.get(caller, id).id().toString()));
    }
}
