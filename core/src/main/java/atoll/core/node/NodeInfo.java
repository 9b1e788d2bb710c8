package atoll.core.node;

import java.time.Instant;
import java.util.List;

/**
 * What a node says of itself.
 *
 * @param warnings what it lacks, a sentence each
 * @param snapshotKey what it signs its snapshots with: an Ed25519 public key, hexadecimal
 * @param runtimeVersions the builds whose snapshots it can restore, the current one first
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
        List<String> runtimeVersions) {
    public NodeInfo {
        warnings = List.copyOf(warnings);
        runtimeVersions = List.copyOf(runtimeVersions);
    }
}
