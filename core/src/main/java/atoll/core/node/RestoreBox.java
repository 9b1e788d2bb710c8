package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.SnapshotId;
import atoll.core.template.Limits;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * How a box is made from a snapshot, or from what a paused box is.
 *
 * @param snapshot empty if it is made from {@code paused}
 * @param paused a paused box, which stays as it is
 * @param prepared a prepared box to use; if it is gone or does not fit, the node does without
 * @param assignment whose body it becomes at once; without it, it can be assigned later
 * @param renameContexts new ids of contexts by those in the snapshot; others keep theirs
 * @param warmContexts to open, if the snapshot is of files only
 * @param limits empty: as in the snapshot; its disk has the size of the snapshot's in any case
 */
public record RestoreBox(
        Optional<SnapshotId> snapshot,
        Optional<BoxId> paused,
        Optional<BoxId> prepared,
        Optional<BoxAssignment> assignment,
        Map<ContextId, ContextId> renameContexts,
        List<ContextSpec> warmContexts,
        Map<String, String> labels,
        Optional<Limits> limits) {
    public RestoreBox {
        if (snapshot.isPresent() == paused.isPresent()) {
            throw new IllegalArgumentException(
                    "snapshot: " + snapshot + ", paused: " + paused + " (expected: one of them)");
        }
        renameContexts = Map.copyOf(renameContexts);
        warmContexts = List.copyOf(warmContexts);
        labels = Map.copyOf(labels);
    }
}
