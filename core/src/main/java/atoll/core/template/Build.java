package atoll.core.template;

import atoll.core.BuildId;
import atoll.core.ProjectId;
import java.time.Instant;
import java.util.Locale;
import java.util.Optional;

/**
 * The making of a template version's image.
 *
 * @param imageKey what it makes
 * @param cause why it was begun
 * @param step the one it is at, or was at when it ended
 * @param imageDigest set when it is ready
 */
public record Build(
        BuildId id,
        ProjectId project,
        String template,
        int version,
        String imageKey,
        State state,
        Cause cause,
        boolean noCache,
        Step step,
        Optional<Failure> failure,
        Optional<String> imageDigest,
        Instant createdAt,
        Optional<Instant> startedAt,
        Optional<Instant> endedAt) {
    /** Where a build is. */
    public enum State {
        QUEUED,
        BUILDING,
        READY,
        FAILED,
        CANCELLED;

        public boolean isOver() {
            return switch (this) {
                case QUEUED, BUILDING -> false;
                case READY, FAILED, CANCELLED -> true;
            };
        }

        public String text() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /** Why a build was begun. */
    public enum Cause {
        REQUEST,
        /** A sandbox was asked for. */
        FIRST_USE,
        /** Another template is made of it. */
        BASE;

        public String text() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /** Counted from 1; 0 before the first. */
    public record Step(int number, int total, String text) {
        public static final Step NONE = new Step(0, 0, "");
    }

    /**
     * Why it is not ready.
     *
     * @param code of the error
     * @param lastLines of the log
     */
    public record Failure(String code, String message, String lastLines) {}

    Build started(Instant at) {
        return new Build(
                id,
                project,
                template,
                version,
                imageKey,
                State.BUILDING,
                cause,
                noCache,
                step,
                failure,
                imageDigest,
                createdAt,
                Optional.of(at),
                endedAt);
    }

    Build at(Step now) {
        return new Build(
                id,
                project,
                template,
                version,
                imageKey,
                state,
                cause,
                noCache,
                now,
                failure,
                imageDigest,
                createdAt,
                startedAt,
                endedAt);
    }

    Build ended(State how, Optional<Failure> why, Optional<String> digest, Instant at) {
        return new Build(
                id,
                project,
                template,
                version,
                imageKey,
                how,
                cause,
                noCache,
                step,
                why,
                digest,
                createdAt,
                startedAt,
                Optional.of(at));
    }
}
