package atoll.core.execution;

import java.util.Locale;

/** Why an execution ended. */
public enum ExitReason {
    COMPLETED,
    /** The code threw. */
    ERROR,
    /** The code called exit(); the context's state stays. */
    EXITED,
    TIMEOUT,
    INTERRUPTED,
    OUT_OF_MEMORY,
    /** The interpreter ended in the middle: a crash, a signal, os._exit. */
    KERNEL_DIED,
    /** The sandbox ended in the middle. */
    SANDBOX_ENDED,
    /** Nobody can say any more: the record was lost with the machine. */
    LOST;

    /** As it stands in replies, e.g. {@code out_of_memory}. */
    public String text() {
        return name().toLowerCase(Locale.ROOT);
    }
}
