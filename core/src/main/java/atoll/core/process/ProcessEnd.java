package atoll.core.process;

import atoll.core.execution.ExecutionOutcome.MemoryUse;
import atoll.core.execution.ExitReason;
import atoll.core.node.NodeEvent;
import java.time.Duration;
import java.time.Instant;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * How a process ended.
 *
 * @param exitCode its own; 128 and the signal's number when a signal ended it; empty when nobody knows
 * @param detail a sentence for people, with values; empty when there is nothing to say
 * @param memory set when it ran out of memory
 * @param duration from its start, without the time in which its sandbox was paused
 */
public record ProcessEnd(
        Reason reason,
        OptionalInt exitCode,
        OptionalInt signal,
        String detail,
        Optional<MemoryUse> memory,
        Instant at,
        Duration duration) {
    private static final int SIGNALED = 128;

    /** Why it ended. */
    public enum Reason {
        EXITED,
        SIGNALED,
        TIMEOUT,
        OUT_OF_MEMORY,
        /** Its sandbox ended in the middle. */
        SANDBOX_ENDED,
        /** Nobody can say any more: what was known was lost with the machine. */
        LOST;

        /** As it stands in replies, e.g. {@code out_of_memory}. */
        public String text() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /** As the node tells it. */
    static ProcessEnd of(NodeEvent.Finish finish) {
        Reason reason = switch (finish.reason()) {
            case COMPLETED, ERROR, EXITED, INTERRUPTED, KERNEL_DIED ->
                finish.signal().isPresent() ? Reason.SIGNALED : Reason.EXITED;
            case TIMEOUT -> Reason.TIMEOUT;
            case OUT_OF_MEMORY -> Reason.OUT_OF_MEMORY;
            case SANDBOX_ENDED -> Reason.SANDBOX_ENDED;
            case LOST -> Reason.LOST;
        };
        OptionalInt exitCode = finish.signal().isPresent()
                ? OptionalInt.of(SIGNALED + finish.signal().getAsInt())
                : finish.exitCode();
        return new ProcessEnd(
                reason,
                exitCode,
                finish.signal(),
                finish.detail(),
                finish.memory(),
                finish.endedAt(),
                finish.duration());
    }

    /** An end that the server has to make up, because nobody can tell a better one. */
    static ProcessEnd madeUp(ExitReason why, String detail, Instant startedAt, Instant at) {
        Reason reason = switch (why) {
            case OUT_OF_MEMORY -> Reason.OUT_OF_MEMORY;
            case SANDBOX_ENDED -> Reason.SANDBOX_ENDED;
            case COMPLETED, ERROR, EXITED, TIMEOUT, INTERRUPTED, KERNEL_DIED, LOST -> Reason.LOST;
        };
        Duration duration = at.isAfter(startedAt) ? Duration.between(startedAt, at) : Duration.ZERO;
        return new ProcessEnd(reason, OptionalInt.empty(), OptionalInt.empty(), detail, Optional.empty(), at, duration);
    }
}
