package atoll.core.sandbox;

import atoll.core.BoxId;
import atoll.core.SnapshotId;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.template.Limits;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What a sandbox is made from that is a copy, as it is on record.
 *
 * @param how its first run begins
 * @param template of the original
 * @param templateVersion of that; 0 where it was not noted
 * @param limits of the original
 * @param env of the original
 * @param contexts in it
 * @param snapshot on the node; empty if it is a paused box
 * @param pausedBox a paused box, which stays as it is; empty if it is a snapshot
 * @param origin what the copy says it is one of
 */
public record Source(
        Run.How how,
        String template,
        int templateVersion,
        Limits limits,
        Map<String, String> env,
        SnapshotKind kind,
        List<Snapshot.Held> contexts,
        Optional<SnapshotId> snapshot,
        Optional<BoxId> pausedBox,
        Sandbox.Origin origin) {
    public Source {
        env = Map.copyOf(env);
        contexts = List.copyOf(contexts);
    }

    /** The contexts of a live sandbox, as a snapshot of it holds them. */
    public static List<Snapshot.Held> held(LiveSandbox sandbox) {
        return sandbox.contexts().stream()
                .map(context -> new Snapshot.Held(
                        context.id(), context.language(), context.isDefault(), context.cwd(), context.env()))
                .toList();
    }
}
