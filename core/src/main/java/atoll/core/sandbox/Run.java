package atoll.core.sandbox;

import atoll.core.ProjectId;
import atoll.core.RunId;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import java.time.Instant;
import java.util.Locale;
import java.util.Optional;

/**
 * One life of a sandbox, from a start or resume to its end or pause.
 *
 * @param from the snapshot that it began with
 * @param end set once it is over
 */
public record Run(
        RunId id,
        ProjectId project,
        SandboxId sandboxId,
        How how,
        Optional<SnapshotId> from,
        Instant startedAt,
        Optional<End> end) {
    /** Reason of a run that ended with a pause. */
    public static final String PAUSED = "paused";

    /** Reason of a run that was given up for a snapshot of an earlier moment. */
    public static final String ROLLED_BACK = "rolled_back";

    /** How it began. */
    public enum How {
        START,
        RESUME,
        /** As the copy of another sandbox. */
        FORK,
        /** From a snapshot. */
        SNAPSHOT,
        ROLLBACK;

        /** As it stands in replies, e.g. {@code resume}. */
        public String text() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /**
     * How it was over.
     *
     * @param reason {@link #PAUSED}, {@link #ROLLED_BACK}, or the sandbox's {@link EndReason#text}
     * @param detail a sentence for people; may be empty
     * @param into the snapshot that it ended with
     */
    public record End(String reason, String detail, Instant at, Optional<SnapshotId> into) {}

    /** The first run of a sandbox. */
    public static Run first(Sandbox sandbox, How how) {
        return new Run(
                sandbox.run(),
                sandbox.project(),
                sandbox.id(),
                how,
                sandbox.origin().flatMap(Sandbox.Origin::snapshot),
                sandbox.createdAt(),
                Optional.empty());
    }

    public Run ended(End how) {
        return new Run(id, project, sandboxId, this.how, from, startedAt, Optional.of(how));
    }
}
