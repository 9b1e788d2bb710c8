package atoll.core.sandbox;

import atoll.core.BoxId;
import atoll.core.ProjectId;
import atoll.core.RunId;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.template.Limits;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * What is on record of a sandbox, also after it ended.
 *
 * @param template id of the template it was made from
 * @param templateVersion of that; 0 where it was not noted
 * @param labels what its maker noted on it
 * @param run the life it is in, or was in last
 * @param main the process that it was made for, if it was
 * @param name unique among the live ones of its project; free again when it has ended
 * @param env of everything that runs in it
 * @param times when what happened to it, and will
 * @param pausedIn the snapshot that a paused one is in, or one that is being paused or resumed; of a rollback, the one that it goes to
 * @param origin what it is a copy of, if it is one
 * @param end set when its state is {@link SandboxState#ENDED}
 */
public record Sandbox(
        SandboxId id,
        ProjectId project,
        String template,
        int templateVersion,
        SandboxState state,
        Limits limits,
        Map<String, String> labels,
        BoxId box,
        RunId run,
        Optional<MainProcess> main,
        Optional<String> name,
        Map<String, String> env,
        Lifecycle lifecycle,
        Times times,
        Optional<SnapshotId> pausedIn,
        Optional<Origin> origin,
        Instant createdAt,
        Optional<End> end) {
    public Sandbox {
        labels = Map.copyOf(labels);
        env = Map.copyOf(env);
        if ((state == SandboxState.ENDED) != end.isPresent()) {
            throw new IllegalArgumentException(
                    "end: " + end + " (expected: set exactly in state ENDED, not " + state + ")");
        }
    }

    /** Without a main process, a name, an environment and an end that was agreed on. */
    public Sandbox(
            SandboxId id,
            ProjectId project,
            String template,
            SandboxState state,
            Limits limits,
            Map<String, String> labels,
            BoxId box,
            RunId run,
            Instant createdAt,
            Optional<End> end) {
        this(
                id,
                project,
                template,
                0,
                state,
                limits,
                labels,
                box,
                run,
                Optional.empty(),
                Optional.empty(),
                Map.of(),
                Lifecycle.UNBOUND,
                Times.since(createdAt),
                Optional.empty(),
                Optional.empty(),
                createdAt,
                end);
    }

    /**
     * How it ended.
     *
     * @param detail a sentence for people, with values
     * @param exitCode of the main process whose end it was
     */
    public record End(EndReason reason, String detail, Instant at, OptionalInt exitCode) {
        public End(EndReason reason, String detail, Instant at) {
            this(reason, detail, at, OptionalInt.empty());
        }
    }

    /**
     * When what happened to it.
     *
     * @param expiresAt when its lifetime is over; empty without a lifetime, and while it is paused
     * @param pausedAt set while it is paused
     * @param lastActiveAt when it was used last; on record it may be some seconds behind
     */
    public record Times(Optional<Instant> expiresAt, Optional<Instant> pausedAt, Instant lastActiveAt) {
        /** Used at that moment, and nothing else. */
        public static Times since(Instant at) {
            return new Times(Optional.empty(), Optional.empty(), at);
        }
    }

    /**
     * Where a copy comes from.
     *
     * @param sandbox empty where nobody knows it any more: a snapshot from elsewhere
     * @param snapshot may be one that was made for the copy alone and is gone
     */
    public record Origin(Optional<SandboxId> sandbox, Optional<SnapshotId> snapshot) {}

    public Optional<Instant> expiresAt() {
        return times.expiresAt();
    }

    public Optional<Instant> pausedAt() {
        return times.pausedAt();
    }

    public Instant lastActiveAt() {
        return times.lastActiveAt();
    }

    /** This sandbox in its next state; fails for a step that is not legal. */
    public Sandbox running() {
        return step(SandboxState.RUNNING).made();
    }

    /** Its next state is that it is being written to this snapshot. */
    public Sandbox pausing(SnapshotId snapshot) {
        Draft next = step(SandboxState.PAUSING);
        next.pausedIn = Optional.of(snapshot);
        return next.made();
    }

    /** It is on disk; its lifetime stands still. */
    public Sandbox paused(Instant at) {
        Draft next = step(SandboxState.PAUSED);
        next.times = new Times(Optional.empty(), Optional.of(at), times.lastActiveAt());
        return next.made();
    }

    /** It goes back from where it is paused. */
    public Sandbox resuming() {
        return step(SandboxState.RESUMING).made();
    }

    /** A running one goes back to this snapshot. */
    public Sandbox rollingBack(SnapshotId snapshot) {
        Draft next = step(SandboxState.RESUMING);
        next.pausedIn = Optional.of(snapshot);
        return next.made();
    }

    /** It runs again, in a new life; a lifetime begins anew. */
    public Sandbox resumed(RunId newRun, Instant at) {
        Draft next = step(SandboxState.RUNNING);
        next.run = newRun;
        next.pausedIn = Optional.empty();
        next.times = new Times(lifecycle.lifetime().map(at::plus), Optional.empty(), at);
        return next.made();
    }

    /** What was to be done was not: it runs on in the life it was in. */
    public Sandbox runningOn() {
        Draft next = step(SandboxState.RUNNING);
        next.pausedIn = Optional.empty();
        return next.made();
    }

    /** It could not be resumed: it is paused as it was. */
    public Sandbox stillPaused() {
        return step(SandboxState.PAUSED).made();
    }

    /** This sandbox with other limits and labels. */
    public Sandbox revised(Limits newLimits, Map<String, String> newLabels) {
        Draft next = new Draft(this);
        next.limits = newLimits;
        next.labels = newLabels;
        return next.made();
    }

    public Sandbox named(Optional<String> newName) {
        Draft next = new Draft(this);
        next.name = newName;
        return next.made();
    }

    /** With another agreement, and when its lifetime is over by it. */
    public Sandbox agreed(Lifecycle newLifecycle, Optional<Instant> expiresAt) {
        Draft next = new Draft(this);
        next.lifecycle = newLifecycle;
        next.times = new Times(expiresAt, times.pausedAt(), times.lastActiveAt());
        return next.made();
    }

    /** Used at that moment, or later. */
    public Sandbox active(Instant at) {
        if (!at.isAfter(times.lastActiveAt())) {
            return this;
        }
        Draft next = new Draft(this);
        next.times = new Times(times.expiresAt(), times.pausedAt(), at);
        return next.made();
    }

    /** This sandbox, ended; fails if it has ended already. */
    public Sandbox ended(End how) {
        Draft next = step(SandboxState.ENDED);
        next.end = Optional.of(how);
        return next.made();
    }

    private Draft step(SandboxState next) {
        if (!state.mayBecome(next)) {
            throw new IllegalStateException("sandbox " + id + ": " + state + " cannot become " + next);
        }
        Draft draft = new Draft(this);
        draft.state = next;
        return draft;
    }

    /** A copy in which some things change. */
    private static final class Draft {
        private final Sandbox from;
        private SandboxState state;
        private Limits limits;
        private Map<String, String> labels;
        private RunId run;
        private Optional<String> name;
        private Lifecycle lifecycle;
        private Times times;
        private Optional<SnapshotId> pausedIn;
        private Optional<End> end;

        Draft(Sandbox from) {
            this.from = from;
            this.state = from.state;
            this.limits = from.limits;
            this.labels = from.labels;
            this.run = from.run;
            this.name = from.name;
            this.lifecycle = from.lifecycle;
            this.times = from.times;
            this.pausedIn = from.pausedIn;
            this.end = from.end;
        }

        Sandbox made() {
            return new Sandbox(
                    from.id,
                    from.project,
                    from.template,
                    from.templateVersion,
                    state,
                    limits,
                    labels,
                    from.box,
                    run,
                    from.main,
                    name,
                    from.env,
                    lifecycle,
                    times,
                    pausedIn,
                    from.origin,
                    from.createdAt,
                    end);
        }
    }
}
