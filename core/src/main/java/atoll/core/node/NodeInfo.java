package atoll.core.node;

import java.time.Instant;
import java.util.List;

/** What a node says of itself. */
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
        List<String> warnings) {
    public NodeInfo {
        warnings = List.copyOf(warnings);
    }
}
