package atoll.core.snapshot;

import atoll.core.PageRequest;
import atoll.core.SandboxId;
import java.util.Map;
import java.util.Optional;

/** Which snapshots to list; an empty filter takes all. {@code labels} must all be there with these values. */
public record SnapshotQuery(
        Optional<SandboxId> sandbox,
        Optional<SnapshotKind> kind,
        Optional<String> name,
        Map<String, String> labels,
        PageRequest page) {
    public static final SnapshotQuery ALL =
            new SnapshotQuery(Optional.empty(), Optional.empty(), Optional.empty(), Map.of(), PageRequest.FIRST);

    public SnapshotQuery {
        labels = Map.copyOf(labels);
    }
}
