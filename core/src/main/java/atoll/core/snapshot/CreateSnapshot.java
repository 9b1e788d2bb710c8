package atoll.core.snapshot;

import atoll.core.SnapshotId;
import atoll.core.sandbox.Labels;
import atoll.core.sandbox.Names;
import atoll.core.sandbox.Term;
import atoll.core.store.OnceByKey;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * A snapshot, as a caller asks for it.
 *
 * @param expiresIn when it is removed by itself; empty: as the settings say
 */
public record CreateSnapshot(
        SnapshotKind kind,
        Optional<String> name,
        Optional<Term> expiresIn,
        Map<String, String> labels,
        Optional<String> idempotencyKey) {
    public CreateSnapshot {
        name.ifPresent(text -> Names.check(text, SnapshotId.PREFIX));
        labels = Labels.check(Map.copyOf(labels));
        idempotencyKey.ifPresent(OnceByKey::check);
    }

    /** Without anything special. */
    public static CreateSnapshot of(SnapshotKind kind) {
        return new CreateSnapshot(kind, Optional.empty(), Optional.empty(), Map.of(), Optional.empty());
    }

    /** What tells this request from another, for idempotency keys. */
    public List<?> parts() {
        return List.of(kind, name, expiresIn, new TreeMap<>(labels));
    }
}
