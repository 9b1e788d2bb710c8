package atoll.core.snapshot;

import atoll.core.SnapshotId;
import atoll.core.sandbox.Names;
import atoll.core.sandbox.Term;
import java.util.Map;
import java.util.Optional;

/**
 * What is to change on a snapshot.
 *
 * @param name a new one; empty: it keeps the one it has, or none
 * @param labels by name: the new value, or empty to take the label away; others stay
 * @param expiresIn from now on; empty: as it is
 */
public record UpdateSnapshot(Optional<String> name, Map<String, Optional<String>> labels, Optional<Term> expiresIn) {
    public UpdateSnapshot {
        name.ifPresent(text -> Names.check(text, SnapshotId.PREFIX));
        labels = Map.copyOf(labels);
    }
}
