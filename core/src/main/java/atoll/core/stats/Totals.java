package atoll.core.stats;

import atoll.core.sandbox.SandboxState;
import java.util.Map;

/**
 * How much is done in a project.
 *
 * @param executions ever begun, also of templates and sandboxes that are gone
 * @param runningExecutions of the whole installation, as are processes
 * @param activeSessions sandboxes that have not ended and are not paused
 * @param sandboxes those on record by state; every state is there
 * @param coldStart from the request for a new sandbox until it is there, over the last three hours, of the whole installation
 */
public record Totals(
        long executions,
        int runningExecutions,
        int runningProcesses,
        long activeSessions,
        Map<SandboxState, Long> sandboxes,
        Latency coldStart) {
    public Totals {
        sandboxes = Map.copyOf(sandboxes);
    }
}
