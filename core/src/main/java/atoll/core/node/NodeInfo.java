package atoll.core.node;

import java.time.Instant;
import java.util.List;

/**
 * What a node says of itself.
 *
 * @param warnings what it lacks, a sentence each
 * @param snapshotKey what it signs its snapshots with: an Ed25519 public key, hexadecimal
 * @param runtimeVersions the builds whose snapshots it can restore, the current one first
 * @param runtimes ways of isolation that it has, or could have
 * @param recipes those it can build images of
 */
public record NodeInfo(
        String instance,
        String engineVersion,
        String runtimeVersion,
        int cgroupVersion,
        long memoryTotalBytes,
        long memoryAvailableBytes,
        long diskTotalBytes,
        long diskAvailableBytes,
        int cpus,
        int boxes,
        Instant startedAt,
        long claimedEpoch,
        List<String> warnings,
        String snapshotKey,
        List<String> runtimeVersions,
        List<BoxRuntime> runtimes,
        List<String> recipes) {
    public NodeInfo {
        warnings = List.copyOf(warnings);
        runtimeVersions = List.copyOf(runtimeVersions);
        runtimes = List.copyOf(runtimes);
        recipes = List.copyOf(recipes);
    }

    /**
     * A way of isolation.
     *
     * @param problem why it is not available, and what to do about it; empty if it is
     * @param lacks what it can't do, such as {@code memory_snapshots}
     */
    public record BoxRuntime(String name, String version, boolean available, String problem, List<String> lacks) {
        public BoxRuntime {
            lacks = List.copyOf(lacks);
        }
    }
}
