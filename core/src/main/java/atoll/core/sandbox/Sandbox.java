package atoll.core.sandbox;

import atoll.core.BoxId;
import atoll.core.ProjectId;
import atoll.core.RunId;
import atoll.core.SandboxId;
import atoll.core.template.Limits;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * What is on record of a sandbox, also after it ended.
 *
 * @param template id of the template it was made from
 * @param labels what its maker noted on it
 * @param main the process that it was made for, if it was
 * @param end set when its state is {@link SandboxState#ENDED}
 */
public record Sandbox(
        SandboxId id,
        ProjectId project,
        String template,
        SandboxState state,
        Limits limits,
        Map<String, String> labels,
        BoxId box,
        RunId run,
        Optional<MainProcess> main,
        Instant createdAt,
        Optional<End> end) {
    public Sandbox {
        labels = Map.copyOf(labels);
        if ((state == SandboxState.ENDED) != end.isPresent()) {
            throw new IllegalArgumentException(
                    "end: " + end + " (expected: set exactly in state ENDED, not " + state + ")");
        }
    }

    /** Without a main process. */
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
        this(id, project, template, state, limits, labels, box, run, Optional.empty(), createdAt, end);
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

    /** This sandbox in its next state; fails for a step that is not legal. */
    public Sandbox running() {
        return step(SandboxState.RUNNING, Optional.empty());
    }

    /** This sandbox with other limits and labels. */
    public Sandbox revised(Limits newLimits, Map<String, String> newLabels) {
        return new Sandbox(id, project, template, state, newLimits, newLabels, box, run, main, createdAt, end);
    }

    /** This sandbox, ended; fails if it has ended already. */
    public Sandbox ended(End how) {
        return step(SandboxState.ENDED, Optional.of(how));
    }

    private Sandbox step(SandboxState next, Optional<End> how) {
        if (!state.mayBecome(next)) {
            throw new IllegalStateException("sandbox " + id + ": " + state + " cannot become " + next);
        }
        return new Sandbox(id, project, template, next, limits, labels, box, run, main, createdAt, how);
    }
}
