package atoll.core.node;

import atoll.core.ContextId;

/**
 * A context as its node sees it.
 *
 * @param version of the interpreter
 * @param restarts how often its interpreter was started afresh
 * @param detail why it failed
 */
public record NodeContext(ContextId id, String version, String cwd, State state, int restarts, String detail) {
    /** Where it is. */
    public enum State {
        STARTING,
        IDLE,
        RUNNING,
        FAILED
    }

    /** The same, with code running in it. */
    public NodeContext running() {
        return new NodeContext(id, version, cwd, State.RUNNING, restarts, detail);
    }
}
