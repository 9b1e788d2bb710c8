package atoll.core;

import atoll.core.execution.ExitReason;
import atoll.core.process.ProcessEnd;
import java.time.Duration;

/** What core reports for metrics, as it happens; called on hot paths, so implementations only count. */
public interface Metrics {
    /** Nobody listens. */
    Metrics NONE = new Metrics() {
        @Override
        public void sandboxTaken(String template, String from, Duration took) {}

        @Override
        public void sandboxEnded(String template, String reason) {}

        @Override
        public void executionEnded(Language language, ExitReason reason, Duration took, long outputBytes) {}

        @Override
        public void processStarted() {}

        @Override
        public void processEnded(ProcessEnd.Reason reason) {}

        @Override
        public void boxStarted(String template, boolean succeeded, Duration took) {}

        @Override
        public void lifeStep(String step, boolean succeeded, Duration took) {}
    };

    /**
     * A sandbox was given to a caller.
     *
     * @param from {@code pool}, {@code starting} (it waited for a box that was on its way), or why it was started from nothing:
     *     {@code empty}, {@code disabled}, {@code limits}
     */
    void sandboxTaken(String template, String from, Duration took);

    void sandboxEnded(String template, String reason);

    void executionEnded(Language language, ExitReason reason, Duration took, long outputBytes);

    void processStarted();

    void processEnded(ProcessEnd.Reason reason);

    void boxStarted(String template, boolean succeeded, Duration took);

    /**
     * The node was asked for a step in the life of a sandbox, by a caller, by use or by time.
     *
     * @param step {@code pause}, {@code resume} or {@code rollback}
     */
    void lifeStep(String step, boolean succeeded, Duration took);
}
