package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.sandbox.EndReason;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.template.Limits;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * A sandbox's body, as its node sees it.
 *
 * @param sandboxId set once it was assigned
 * @param warmContexts those that were started with it
 * @param limits those it has now
 * @param end set when it ended
 * @param restoredFrom what it was made from, if it was not started
 * @param pausedIn what it is on disk, while it is paused or being paused
 * @param pauseKind what of it that keeps; set where {@code pausedIn} is, if the node knows
 * @param pauseBytes the size of that, once it is whole
 * @param contexts those it has, by their present ids: warm ones, those that came with a snapshot, and those opened since
 * @param deadline when it ends by itself
 */
public record Box(
        BoxId id,
        BoxState state,
        Optional<SandboxId> sandboxId,
        Map<String, String> labels,
        List<ContextSpec> warmContexts,
        Optional<Limits> limits,
        Optional<End> end,
        Optional<SnapshotId> restoredFrom,
        Optional<SnapshotId> pausedIn,
        Optional<SnapshotKind> pauseKind,
        OptionalLong pauseBytes,
        List<NodeSnapshot.Held> contexts,
        Optional<Instant> deadline) {
    public Box {
        labels = Map.copyOf(labels);
        warmContexts = List.copyOf(warmContexts);
        contexts = List.copyOf(contexts);
    }

    /** How it ended; {@code detail} is a sentence for people. */
    public record End(EndReason reason, String detail, Instant at) {}
}
