package atoll.core;

import atoll.core.node.NodeInfo;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * How the server is, at this moment.
 *
 * @param nodeConnected whether the node can be reached
 * @param ready whether store and node have been compared since the start: only then is everything known
 * @param replaced whether a newer server has claimed the node: this one serves nobody any more
 * @param problem why the node can't be reached, if it can't
 * @param node what it said of itself last; empty if it never answered
 */
public record ServerStatus(
        boolean nodeConnected,
        boolean ready,
        boolean replaced,
        Optional<String> problem,
        Optional<NodeInfo> node,
        List<PoolStatus> pools,
        int liveSandboxes,
        int runningExecutions,
        int runningProcesses) {
    public ServerStatus {
        pools = List.copyOf(pools);
    }

    /**
     * One template's pool.
     *
     * @param ready started boxes that wait to be taken
     * @param starting boxes on their way
     * @param misses those that waited for a start, by its reason: {@code starting}, {@code empty}, {@code disabled}, {@code limits}
     * @param lastFailure why the last start failed; empty when it did not
     */
    public record PoolStatus(
            String template,
            int target,
            int ready,
            int starting,
            long hits,
            Map<String, Long> misses,
            Optional<String> lastFailure) {
        public PoolStatus {
            misses = Map.copyOf(misses);
        }
    }
}
