package atoll.core.snapshot;

import atoll.core.SnapshotId;
import atoll.core.sandbox.Labels;
import atoll.core.sandbox.Names;
import java.util.Map;
import java.util.Optional;

/** How a snapshot from a file is to be noted here. */
public record ImportSnapshot(Optional<String> name, Map<String, String> labels) {
    public ImportSnapshot {
        name.ifPresent(text -> Names.check(text, SnapshotId.PREFIX));
        labels = Labels.check(Map.copyOf(labels));
    }
}
