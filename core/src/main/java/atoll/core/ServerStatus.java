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
 * @param liveSandboxes all that have not ended
 * @param pausedSandboxes of these, the ones that are on disk only
 */
public record ServerStatus(
        boolean nodeConnected,
        boolean ready,
        boolean replaced,
        Optional<String> problem,
        Optional<NodeInfo> node,
        List<PoolStatus> pools,
        int liveSandboxes,
        int pausedSandboxes,
        int runningExecutions,
        int runningProcesses) {
    public ServerStatus {
        pools = List.copyOf(pools);
    }

    /**
     * One template's pool.
     *
     * @param target started boxes that it is to hold now: its configured depth, more where as many were asked for at once in the last
     *     minutes, less where memory bounds it
     * @param ready started boxes that wait to be taken
     * @param starting boxes on their way
     * @param prepared boxes without anything that runs, for restores
     * @param golden what its boxes are restored from; empty until it was made
     * @param misses those that waited for a start, by its reason: {@code starting}, {@code empty}, {@code disabled}, {@code limits}; and
     *     those for whom no box of the pool was fit because they come from a snapshot: {@code snapshot}
     * @param starts boxes that were begun, by how: {@code restored} from the golden snapshot, {@code started} from nothing
     * @param restoreFailures restores of the golden snapshot that failed, by the error's code, e.g. {@code snapshot_unusable}; each
     *     was made up for by a start from nothing
     * @param memoryBytes what it is reckoned to take
     * @param lastFailure why the last start failed; empty when it did not
     */
    public record PoolStatus(
            String template,
            int target,
            int ready,
            int starting,
            int prepared,
            Optional<Golden> golden,
            long hits,
            Map<String, Long> misses,
            Map<String, Long> starts,
            Map<String, Long> restoreFailures,
            long memoryBytes,
            Optional<String> lastFailure) {
        public PoolStatus {
            misses = Map.copyOf(misses);
            starts = Map.copyOf(starts);
            restoreFailures = Map.copyOf(restoreFailures);
        }

        /** The snapshot of a box that was just started. */
        public record Golden(SnapshotId id, long sizeBytes) {}
    }
}
