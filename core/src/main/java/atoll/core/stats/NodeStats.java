package atoll.core.stats;

import atoll.core.node.NodeInfo;
import java.time.Instant;
import java.util.Optional;
import java.util.OptionalDouble;

/**
 * The node: what it has, and what is used of it.
 *
 * @param problem why it can't be reached, if it can't
 * @param info what it said of itself last, at most some seconds ago while it is connected; empty if it never answered
 * @param kernelVersion of the machine
 * @param loadAverage of the machine, over the last minute; empty where it is not known
 */
public record NodeStats(
        boolean connected,
        Optional<String> problem,
        Optional<NodeInfo> info,
        String kernelVersion,
        OptionalDouble loadAverage,
        int runningSandboxes,
        int pausedSandboxes,
        Instant serverStartedAt) {}
