package atoll.core.snapshot;

import atoll.core.ContextId;
import atoll.core.Language;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.template.Limits;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What is on record of a snapshot. What a sandbox from it may do is decided by this record and never by the file.
 *
 * @param name unique among those of its project that are not lost
 * @param sandbox whose moment it is; empty for one from another installation
 * @param template of that sandbox
 * @param templateVersion of that; 0 where it was not noted
 * @param parent the snapshot that the sandbox came from
 * @param limits that the sandbox had
 * @param env that the sandbox had
 * @param contexts that were in it
 * @param sizeBytes on disk; 0 until it is ready
 * @param stopped how long the sandbox stood still for it
 * @param expiresAt when it is removed; empty: never
 * @param detail why it is lost, or why the node can't restore it now; else empty
 */
public record Snapshot(
        SnapshotId id,
        ProjectId project,
        Optional<String> name,
        SnapshotKind kind,
        Optional<SandboxId> sandbox,
        String template,
        int templateVersion,
        Optional<SnapshotId> parent,
        Limits limits,
        Map<String, String> env,
        List<Held> contexts,
        Map<String, String> labels,
        SnapshotState state,
        long sizeBytes,
        Duration stopped,
        Instant createdAt,
        Optional<Instant> expiresAt,
        String detail) {
    public Snapshot {
        env = Map.copyOf(env);
        contexts = List.copyOf(contexts);
        labels = Map.copyOf(labels);
    }

    /** A context in it, as it was. */
    public record Held(ContextId id, Language language, boolean isDefault, String cwd, Map<String, String> env) {
        public Held {
            env = Map.copyOf(env);
        }
    }

    /** It is whole on the node; fails for a step that is not legal. */
    public Snapshot ready(long size, Duration stoppedFor) {
        return with(SnapshotState.READY, name, labels, size, stoppedFor, expiresAt, "");
    }

    /** The same with other contexts in it. */
    public Snapshot holding(List<Held> newContexts) {
        return copy(name, newContexts, labels, state, sizeBytes, stopped, expiresAt, detail);
    }

    /** The same with what is to be said of it. */
    public Snapshot described(String newDetail) {
        return copy(name, contexts, labels, state, sizeBytes, stopped, expiresAt, newDetail);
    }

    /** It is not on the node any more. */
    public Snapshot lost(String why) {
        return with(SnapshotState.LOST, name, labels, sizeBytes, stopped, expiresAt, why);
    }

    public Snapshot revised(Optional<String> newName, Map<String, String> newLabels, Optional<Instant> newExpiresAt) {
        return copy(newName, contexts, newLabels, state, sizeBytes, stopped, newExpiresAt, detail);
    }

    private Snapshot with(
            SnapshotState next,
            Optional<String> newName,
            Map<String, String> newLabels,
            long size,
            Duration stoppedFor,
            Optional<Instant> newExpiresAt,
            String newDetail) {
        if (!state.mayBecome(next)) {
            throw new IllegalStateException("snapshot " + id + ": " + state + " cannot become " + next);
        }
        return copy(newName, contexts, newLabels, next, size, stoppedFor, newExpiresAt, newDetail);
    }

    private Snapshot copy(
            Optional<String> newName,
            List<Held> newContexts,
            Map<String, String> newLabels,
            SnapshotState newState,
            long size,
            Duration stoppedFor,
            Optional<Instant> newExpiresAt,
            String newDetail) {
        return new Snapshot(
                id,
                project,
                newName,
                kind,
                sandbox,
                template,
                templateVersion,
                parent,
                limits,
                env,
                newContexts,
                newLabels,
                newState,
                size,
                stoppedFor,
                createdAt,
                newExpiresAt,
                newDetail);
    }
}
