package atoll.core.sandbox;

import atoll.core.ProjectId;

/**
 * Places for sandboxes that are about to be. Each counts as a running sandbox until one is made in it, or this is closed: so calls at the
 * same time don't get more together than each of them alone.
 */
public final class Room implements AutoCloseable {
    private final LiveSandboxes live;
    private final ProjectId project;
    /** Changed by {@link #live} only, which guards it. */
    private int left;

    /** Requires: {@code live} counts them already. */
    Room(LiveSandboxes live, ProjectId project, int places) {
        this.live = live;
        this.project = project;
        this.left = places;
    }

    ProjectId project() {
        return project;
    }

    int left() {
        return left;
    }

    void leave(int places) {
        left = places;
    }

    /** Gives back what nothing was made in. */
    @Override
    public void close() {
        live.giveBack(this);
    }
}
