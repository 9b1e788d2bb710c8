package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.Language;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.template.Limits;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * A snapshot as its node sees it.
 *
 * @param labels mean nothing to the node
 * @param box that it was made of; empty where its description is damaged: then nothing is known of it but its id, and the rest is made up
 * @param contexts that it holds, by the ids they had
 * @param unusable why this node can't restore it, in a sentence
 * @param stopped how long its source stood still for it
 */
public record NodeSnapshot(
        SnapshotId id,
        SnapshotKind kind,
        Map<String, String> labels,
        Optional<BoxId> box,
        Optional<SandboxId> sandbox,
        String imageDigest,
        String runtimeVersion,
        long sizeBytes,
        Instant createdAt,
        Limits limits,
        List<Held> contexts,
        Optional<String> unusable,
        Duration stopped) {
    public NodeSnapshot {
        labels = Map.copyOf(labels);
        contexts = List.copyOf(contexts);
    }

    /** A context in it. */
    public record Held(ContextId id, Language language) {}
}
