package atoll.core.testing;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.execution.ExitReason;
import atoll.core.node.Box;
import atoll.core.node.BoxAssignment;
import atoll.core.node.BoxSpec;
import atoll.core.node.BoxState;
import atoll.core.node.ContextSpec;
import atoll.core.node.ExecutionSpec;
import atoll.core.node.NodeSnapshot;
import atoll.core.node.RestoreBox;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.template.Limits;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;

/**
 * The snapshots of a {@link FakeNode}: contexts with their variables, files, ports, and what executions were at, as bytes. So nothing that happens to a box later
 * can reach its snapshots, and an exported one can be imported into another node.
 */
public final class FakeSnapshots {
    private static final String MAGIC = "fake-snapshot-1";
    private static final Duration STOPPED = Duration.ofMillis(14);

    private final FakeNode node;
    private final FakeSteps steps;
    /** All of this is guarded by the node's lock. */
    private final Map<SnapshotId, Kept> kept = new LinkedHashMap<>();

    private final Map<BoxId, Kept> pauses = new HashMap<>();
    private final Set<BoxId> restoring = new HashSet<>();
    private final Set<SnapshotId> damaged = new HashSet<>();
    private String key = "ab".repeat(32);
    private long bytes = 1 << 20;
    private int restored;
    private int restoresNow;
    private int mostRestoresAtOnce;
    private int preparedUsed;
    private int transfers;
    private long exported;
    private long imported;

    /** What there is of one. */
    @SuppressWarnings("ArrayRecordComponent") // Nobody compares them.
    private record Kept(
            SnapshotId id,
            SnapshotKind kind,
            Map<String, String> labels,
            BoxId box,
            Optional<SandboxId> sandbox,
            String image,
            String runtime,
            Limits limits,
            List<NodeSnapshot.Held> contexts,
            byte[] content,
            long bytes,
            Optional<String> spoiled) {
        Kept as(SnapshotId newId, Map<String, String> newLabels) {
            return new Kept(
                    newId, kind, newLabels, box, sandbox, image, runtime, limits, contexts, content, bytes, spoiled);
        }

        Kept spoiled(String why) {
            return new Kept(
                    id, kind, labels, box, sandbox, image, runtime, limits, contexts, content, bytes, Optional.of(why));
        }
    }

    FakeSnapshots(FakeNode node, FakeSteps steps) {
        this.node = node;
        this.steps = steps;
    }

    // What tests do to them.

    /** Snapshots are so large from now on. */
    public void makeLarge(long each) {
        synchronized (node.lock) {
            bytes = each;
        }
    }

    /** The node signs with this from now on. */
    public void setKey(String hex) {
        synchronized (node.lock) {
            key = hex;
        }
    }

    /** It, or what a paused box is, can't be restored any more. */
    public void spoil(SnapshotId id, String why) {
        synchronized (node.lock) {
            kept.computeIfPresent(id, (_, there) -> there.spoiled(why));
            pauses.replaceAll((_, there) -> there.id.equals(id) ? there.spoiled(why) : there);
        }
    }

    /** Its description can't be read any more. */
    public void damage(SnapshotId id, String why) {
        synchronized (node.lock) {
            kept.computeIfPresent(id, (_, there) -> there.spoiled(why));
            damaged.add(id);
        }
    }

    /** Someone removed its file. */
    public void lose(SnapshotId id) {
        synchronized (node.lock) {
            kept.remove(id);
        }
    }

    public Set<SnapshotId> ids() {
        synchronized (node.lock) {
            return Set.copyOf(kept.keySet());
        }
    }

    /** So many boxes are paused, or were and their images are still there. */
    public int pauses() {
        synchronized (node.lock) {
            pauses.keySet().removeIf(id -> !node.boxes.containsKey(id));
            return pauses.size();
        }
    }

    /** Boxes that were restored so far, resumed ones aside. */
    public int restored() {
        synchronized (node.lock) {
            return restored;
        }
    }

    public int mostRestoresAtOnce() {
        synchronized (node.lock) {
            return mostRestoresAtOnce;
        }
    }

    /** Prepared boxes that became part of another. */
    public int preparedUsed() {
        synchronized (node.lock) {
            return preparedUsed;
        }
    }

    /** Exports and imports under way. */
    public int transfers() {
        synchronized (node.lock) {
            return transfers;
        }
    }

    /** Bytes that exports have given out so far. */
    public long exported() {
        synchronized (node.lock) {
            return exported;
        }
    }

    /** Bytes that imports have taken so far. */
    public long imported() {
        synchronized (node.lock) {
            return imported;
        }
    }

    String key() {
        return key;
    }

    // The port.

    Box prepareBox(BoxId id, BoxSpec spec) {
        steps.reach(FakeCall.PREPARE_BOX, FakeCall.Step.BEFORE);
        Box prepared = node.mutate(() -> {
            FakeNode.FakeBox there = node.boxes.get(id);
            if (there != null) {
                return there.seen();
            }
            FakeNode.FakeBox box = new FakeNode.FakeBox(id, spec);
            box.contexts.clear();
            box.state = BoxState.PREPARED;
            node.boxes.put(id, box);
            node.changed(box);
            return box.seen();
        });
        steps.reach(FakeCall.PREPARE_BOX, FakeCall.Step.AFTER);
        return prepared;
    }

    /** One that is gone or does not fit is done without. */
    private void use(Optional<BoxId> prepared, String image, Limits limits) {
        FakeNode.FakeBox box = prepared.map(node.boxes::get).orElse(null);
        if (box != null
                && box.state == BoxState.PREPARED
                && box.spec.imageDigest().equals(image)
                && box.spec.limits().diskBytes() == limits.diskBytes()) {
            node.boxes.remove(box.id);
            box.state = BoxState.DELETED;
            preparedUsed++;
            node.changed(box);
        }
    }

    Box restoreBox(BoxId id, RestoreBox request) {
        steps.reach(FakeCall.RESTORE_BOX, FakeCall.Step.BEFORE);
        int mine;
        Kept from;
        synchronized (node.lock) {
            mine = node.connection;
            Optional<Kept> source = node.mutate(() -> {
                while (restoring.contains(id)) {
                    node.pause(mine);
                }
                return node.boxes.containsKey(id) ? Optional.<Kept>empty() : Optional.of(source(request));
            });
            if (source.isEmpty()) {
                return node.known(id).seen();
            }
            from = source.get();
            restoring.add(id);
            restoresNow++;
            mostRestoresAtOnce = Math.max(mostRestoresAtOnce, restoresNow);
        }
        Box done;
        try {
            steps.reach(FakeCall.RESTORE_BOX, FakeCall.Step.MIDWAY);
            synchronized (node.lock) {
                done = restored(id, from, request);
            }
        } finally {
            synchronized (node.lock) {
                restoresNow--;
                restoring.remove(id);
                node.lock.notifyAll();
            }
        }
        return answer(FakeCall.RESTORE_BOX, done, mine);
    }

    private Kept source(RestoreBox request) {
        if (request.snapshot().isPresent()) {
            return usable(need(request.snapshot().get()));
        }
        BoxId paused = request.paused().orElseThrow();
        if (node.settled(paused).state != BoxState.PAUSED) {
            throw FakeNode.error(ErrorCode.CONFLICT, "box " + paused + " is not paused");
        }
        return usable(pauseOf(paused));
    }

    private Box restored(BoxId id, Kept from, RestoreBox request) {
        Limits wanted = request.limits().orElse(from.limits);
        Limits limits = new Limits(
                wanted.memoryBytes(),
                wanted.cpuMillis(),
                from.limits.diskBytes(),
                wanted.maxProcesses(),
                wanted.maxOpenFiles());
        boolean files = from.kind == SnapshotKind.FILES;
        List<ContextSpec> warm = files ? request.warmContexts() : List.of();
        FakeNode.FakeBox box = new FakeNode.FakeBox(id, new BoxSpec(from.image, limits, warm, request.labels()));
        box.restoredFrom = Optional.of(from.id);
        load(box, from, request.renameContexts(), true);
        request.assignment().ifPresent(box::assign);
        use(request.prepared(), from.image, limits);
        node.boxes.put(id, box);
        restored++;
        node.changed(box);
        return box.seen();
    }

    Box pauseBox(BoxId id, SnapshotId snapshot, SnapshotKind kind) {
        steps.reach(FakeCall.PAUSE_BOX, FakeCall.Step.BEFORE);
        int mine;
        FakeNode.FakeBox box;
        synchronized (node.lock) {
            mine = node.connection;
            box = node.mutate(() -> node.settled(id));
            if (box.state == BoxState.PAUSED) {
                return box.seen();
            }
            needUnused(snapshot);
            needDisk();
            box.pausedIn = Optional.of(snapshot);
            box.pauseKind = Optional.of(kind);
            become(box, BoxState.PAUSING);
        }
        Box done;
        midway(FakeCall.PAUSE_BOX, box, BoxState.PAUSING, BoxState.READY);
        synchronized (node.lock) {
            stillThere(box, BoxState.PAUSING);
            Kept image = keep(box, snapshot, kind, Map.of());
            pauses.put(id, image);
            if (kind == SnapshotKind.FILES) {
                node.endAllIn(box, ExitReason.LOST, "its files alone were kept");
                box.contexts.clear();
            }
            box.pauseBytes = OptionalLong.of(image.bytes);
            become(box, BoxState.PAUSED);
            done = box.seen();
        }
        return answer(FakeCall.PAUSE_BOX, done, mine);
    }

    Box resumeBox(BoxId id, Optional<BoxId> prepared, BoxAssignment assignment) {
        steps.reach(FakeCall.RESUME_BOX, FakeCall.Step.BEFORE);
        int mine;
        FakeNode.FakeBox box;
        Kept image;
        synchronized (node.lock) {
            mine = node.connection;
            box = node.mutate(() -> node.settled(id));
            if (box.state != BoxState.PAUSED) {
                return box.seen();
            }
            image = usable(pauseOf(id));
            checkSandbox(box, assignment);
            become(box, BoxState.RESUMING);
        }
        Box done;
        midway(FakeCall.RESUME_BOX, box, BoxState.RESUMING, BoxState.PAUSED);
        synchronized (node.lock) {
            stillThere(box, BoxState.RESUMING);
            use(prepared, image.image, image.limits);
            box.assign(assignment);
            box.pausedIn = Optional.empty();
            box.pauseBytes = OptionalLong.empty();
            pauses.remove(id);
            become(box, BoxState.READY);
            done = box.seen();
        }
        return answer(FakeCall.RESUME_BOX, done, mine);
    }

    private static void checkSandbox(FakeNode.FakeBox box, BoxAssignment assignment) {
        if (box.sandbox.isPresent() && !box.sandbox.get().equals(assignment.sandboxId())) {
            throw FakeNode.error(ErrorCode.CONFLICT, "box " + box.id + " has a sandbox already");
        }
    }

    Box rollbackBox(BoxId id, SnapshotId snapshot, Optional<BoxId> prepared, BoxAssignment assignment) {
        steps.reach(FakeCall.ROLLBACK_BOX, FakeCall.Step.BEFORE);
        int mine;
        FakeNode.FakeBox box;
        Kept image;
        synchronized (node.lock) {
            mine = node.connection;
            box = node.mutate(() -> node.running(id));
            image = usable(need(snapshot));
            boolean own = image.box.equals(id) || (box.sandbox.isPresent() && box.sandbox.equals(image.sandbox));
            if (!own) {
                throw FakeNode.error(
                        ErrorCode.SNAPSHOT_UNUSABLE, "snapshot " + snapshot + " was made of another sandbox");
            }
            checkSandbox(box, assignment);
            become(box, BoxState.RESUMING);
        }
        Box done;
        midway(FakeCall.ROLLBACK_BOX, box, BoxState.RESUMING, BoxState.READY);
        synchronized (node.lock) {
            stillThere(box, BoxState.RESUMING);
            use(prepared, image.image, image.limits);
            node.endAllIn(box, ExitReason.LOST, "rolled back to snapshot " + snapshot);
            load(box, image, Map.of(), false);
            box.assign(assignment);
            box.restoredFrom = Optional.of(snapshot);
            become(box, BoxState.READY);
            done = box.seen();
        }
        return answer(FakeCall.ROLLBACK_BOX, done, mine);
    }

    void setDeadline(BoxId id, Optional<Instant> deadline) {
        steps.reach(FakeCall.SET_DEADLINE, FakeCall.Step.BEFORE);
        FakeNode.FakeBox changed = node.mutate(() -> {
            FakeNode.FakeBox box = node.settled(id);
            box.deadline = deadline;
            node.changed(box);
            return box;
        });
        assert changed.id.equals(id);
        steps.reach(FakeCall.SET_DEADLINE, FakeCall.Step.AFTER);
    }

    NodeSnapshot createSnapshot(BoxId id, SnapshotId snapshot, SnapshotKind kind, Map<String, String> labels) {
        steps.reach(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.BEFORE);
        int mine;
        Kept made;
        FakeNode.FakeBox box;
        synchronized (node.lock) {
            mine = node.connection;
            box = node.mutate(() -> node.settled(id));
            Kept there = kept.get(snapshot);
            if (there != null && there.box.equals(id) && there.kind == kind) {
                return seen(there);
            }
            needUnused(snapshot);
            needDisk();
            made = ofNow(box, snapshot, kind, labels);
        }
        steps.reach(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.MIDWAY);
        synchronized (node.lock) {
            FakeNode.FakeBox still = node.known(id);
            if (still.state.isOver()) {
                throw FakeNode.error(ErrorCode.CONFLICT, "box " + id + " has ended");
            }
            kept.put(snapshot, made);
        }
        steps.reach(FakeCall.CREATE_SNAPSHOT, FakeCall.Step.AFTER);
        synchronized (node.lock) {
            checkConnection(mine);
            return seen(made);
        }
    }

    private Kept ofNow(FakeNode.FakeBox box, SnapshotId snapshot, SnapshotKind kind, Map<String, String> labels) {
        if (box.state != BoxState.PAUSED) {
            return keep(box, snapshot, kind, labels);
        }
        if (pauseOf(box.id).kind != kind) {
            throw FakeNode.error(ErrorCode.SANDBOX_PAUSED, "box " + box.id + " is paused");
        }
        return pauseOf(box.id).as(snapshot, labels);
    }

    List<NodeSnapshot> list() {
        List<NodeSnapshot> all =
                node.call(() -> kept.values().stream().map(this::seen).toList());
        steps.reach(FakeCall.LIST_SNAPSHOTS, FakeCall.Step.AFTER);
        return all;
    }

    void delete(SnapshotId id) {
        steps.reach(FakeCall.DELETE_SNAPSHOT, FakeCall.Step.BEFORE);
        boolean done = node.mutate(() -> {
            if (isPause(id)) {
                throw FakeNode.error(ErrorCode.CONFLICT, "snapshot " + id + " is the pause of a box");
            }
            kept.remove(id);
            return true;
        });
        assert done;
        steps.reach(FakeCall.DELETE_SNAPSHOT, FakeCall.Step.AFTER);
    }

    // Parts of the calls.

    private void become(FakeNode.FakeBox box, BoxState state) {
        box.state = state;
        if (state == BoxState.READY) {
            box.pausedIn = Optional.empty();
        }
        node.changed(box);
    }

    /** What tests do in the middle; a failure takes the box back. */
    private void midway(FakeCall call, FakeNode.FakeBox box, BoxState now, BoxState before) {
        boolean passed = false;
        try {
            steps.reach(call, FakeCall.Step.MIDWAY);
            passed = true;
        } finally {
            synchronized (node.lock) {
                if (!passed && box.state == now) {
                    become(box, before);
                }
            }
        }
    }

    /** It may have been deleted, or have ended, meanwhile. */
    private void stillThere(FakeNode.FakeBox box, BoxState state) {
        if (box.state != state) {
            FakeNode.FakeBox there = node.known(box.id);
            throw FakeNode.error(ErrorCode.CONFLICT, "box " + there.id + " has ended");
        }
    }

    private Box answer(FakeCall call, Box done, int mine) {
        steps.reach(call, FakeCall.Step.AFTER);
        synchronized (node.lock) {
            checkConnection(mine);
            return done;
        }
    }

    private void checkConnection(int mine) {
        if (mine != node.connection) {
            throw FakeNode.unavailable();
        }
    }

    private void needDisk() {
        if (!node.hasDisk(bytes)) {
            throw FakeNode.error(ErrorCode.DISK_FULL, "the disk has no room for a snapshot of " + bytes + " bytes");
        }
    }

    private boolean isPause(SnapshotId id) {
        return pauses.values().stream().anyMatch(there -> there.id.equals(id) && node.boxes.containsKey(there.box));
    }

    private void needUnused(SnapshotId id) {
        if (kept.containsKey(id) || isPause(id)) {
            throw FakeNode.error(ErrorCode.CONFLICT, "snapshot " + id + " exists already");
        }
    }

    private Kept need(SnapshotId id) {
        Kept there = kept.get(id);
        if (there == null) {
            throw FakeNode.error(ErrorCode.SNAPSHOT_NOT_FOUND, "no snapshot " + id);
        }
        return there;
    }

    private Kept pauseOf(BoxId id) {
        Kept image = pauses.get(id);
        if (image == null) {
            throw FakeNode.error(ErrorCode.SNAPSHOT_NOT_FOUND, "no pause snapshot of " + id);
        }
        return image;
    }

    private Kept usable(Kept there) {
        unusable(there).ifPresent(why -> {
            throw FakeNode.error(ErrorCode.SNAPSHOT_UNUSABLE, "snapshot " + there.id + " can't be used: " + why);
        });
        return there;
    }

    private Optional<String> unusable(Kept there) {
        if (there.spoiled.isPresent()) {
            return there.spoiled;
        }
        boolean hasImage = node.hasImage(there.image);
        return hasImage ? Optional.empty() : Optional.of("its image is not here");
    }

    private NodeSnapshot seen(Kept there) {
        if (damaged.contains(there.id)) {
            return new NodeSnapshot(
                    there.id,
                    SnapshotKind.MEMORY,
                    Map.of(),
                    Optional.empty(),
                    Optional.empty(),
                    "",
                    "",
                    there.bytes,
                    Instant.EPOCH,
                    Limits.DEFAULT,
                    List.of(),
                    unusable(there),
                    Duration.ZERO);
        }
        return new NodeSnapshot(
                there.id,
                there.kind,
                there.labels,
                Optional.of(there.box),
                there.sandbox,
                there.image,
                there.runtime,
                there.bytes,
                FakeNode.START,
                there.limits,
                there.contexts,
                unusable(there),
                STOPPED);
    }

    // What is in them.

    private Kept keep(FakeNode.FakeBox box, SnapshotId id, SnapshotKind kind, Map<String, String> labels) {
        boolean files = kind == SnapshotKind.FILES;
        return new Kept(
                id,
                kind,
                labels,
                box.id,
                box.sandbox,
                box.spec.imageDigest(),
                "1",
                box.limits,
                files ? List.of() : box.seen().contexts(),
                content(box, kind),
                bytes,
                Optional.empty());
    }

    private byte[] content(FakeNode.FakeBox box, SnapshotKind kind) {
        var content = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(content)) {
            box.files.save(out);
            if (kind == SnapshotKind.FILES) {
                return content.toByteArray();
            }
            box.ports.save(out);
            out.writeInt(box.contexts.size());
            for (FakeNode.FakeContext context : box.contexts.values()) {
                out.writeUTF(context.spec.id().toString());
                out.writeUTF(context.spec.language().text());
                text(out, context.spec.cwd());
                map(out, context.spec.env());
                map(out, context.state);
                out.writeInt(context.restarts);
            }
            List<FakeNode.FakeExecution> running = new ArrayList<>(node.runningIn(box));
            running.addAll(box.ghosts);
            out.writeInt(running.size());
            for (FakeNode.FakeExecution execution : running) {
                out.writeUTF(execution.spec.contextId().toString());
                text(out, execution.spec.code());
                map(out, execution.spec.env());
                out.writeInt(execution.line);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return content.toByteArray();
    }

    /** Makes the box what the snapshot is. {@code going}: what ran then runs on, and nobody follows it. */
    private void load(FakeNode.FakeBox box, Kept from, Map<ContextId, ContextId> rename, boolean going) {
        box.contexts.clear();
        box.spec.warmContexts().forEach(spec -> box.contexts.put(spec.id(), new FakeNode.FakeContext(spec)));
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(from.content))) {
            box.files.load(in);
            if (from.kind == SnapshotKind.FILES) {
                return;
            }
            box.contexts.clear();
            box.ports.load(in);
            for (int left = in.readInt(); left > 0; left--) {
                ContextId old = ContextId.parse(in.readUTF());
                ContextId id = rename.getOrDefault(old, old);
                FakeNode.FakeContext context =
                        new FakeNode.FakeContext(new ContextSpec(id, Language.parse(in.readUTF()), text(in), map(in)));
                context.state.putAll(map(in));
                context.restarts = in.readInt();
                box.contexts.put(id, context);
            }
            for (int left = in.readInt(); left > 0; left--) {
                ContextId old = ContextId.parse(in.readUTF());
                ExecutionSpec spec = new ExecutionSpec(
                        ExecutionId.random(), rename.getOrDefault(old, old), text(in), Duration.ofHours(1), map(in));
                int line = in.readInt();
                if (going) {
                    node.haunt(box, spec, line);
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void text(DataOutputStream out, String text) throws IOException {
        byte[] encoded = text.getBytes(StandardCharsets.UTF_8);
        out.writeInt(encoded.length);
        out.write(encoded);
    }

    private static String text(DataInputStream in) throws IOException {
        return new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8);
    }

    private static void map(DataOutputStream out, Map<String, String> map) throws IOException {
        out.writeInt(map.size());
        for (Map.Entry<String, String> entry : map.entrySet()) {
            text(out, entry.getKey());
            text(out, entry.getValue());
        }
    }

    private static Map<String, String> map(DataInputStream in) throws IOException {
        Map<String, String> map = new HashMap<>();
        for (int left = in.readInt(); left > 0; left--) {
            String name = text(in);
            map.put(name, text(in));
        }
        return map;
    }

    // As files.

    InputStream export(SnapshotId id) {
        steps.reach(FakeCall.EXPORT_SNAPSHOT, FakeCall.Step.BEFORE);
        synchronized (node.lock) {
            Kept there = node.call(() -> need(id));
            transfers++;
            return new SequenceInputStream(new ByteArrayInputStream(head(there)), new Body(there.bytes)) {
                private boolean closed;

                @Override
                public void close() throws IOException {
                    synchronized (node.lock) {
                        transfers -= closed ? 0 : 1;
                        closed = true;
                    }
                    super.close();
                }
            };
        }
    }

    private byte[] head(Kept there) {
        var head = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(head)) {
            out.writeUTF(MAGIC);
            out.writeUTF(key);
            out.writeUTF(there.kind.name());
            out.writeUTF(there.box.toString());
            out.writeUTF(there.sandbox.map(SandboxId::toString).orElse(""));
            out.writeUTF(there.image);
            out.writeUTF(there.runtime);
            out.writeLong(there.limits.memoryBytes());
            out.writeInt(there.limits.cpuMillis());
            out.writeLong(there.limits.diskBytes());
            out.writeInt(there.limits.maxProcesses());
            out.writeInt(there.limits.maxOpenFiles());
            out.writeInt(there.contexts.size());
            for (NodeSnapshot.Held context : there.contexts) {
                out.writeUTF(context.id().toString());
                out.writeUTF(context.language().text());
            }
            out.writeInt(there.content.length);
            out.write(there.content);
            out.writeLong(there.bytes);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return head.toByteArray();
    }

    /** The memory of a snapshot, so to speak: as many bytes as it is large, that tell where they belong. */
    private final class Body extends InputStream {
        private final int mine = node.connection;
        private final long size;
        private long at;

        Body(long size) {
            this.size = size;
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] into, int from, int most) throws IOException {
            synchronized (node.lock) {
                if (mine != node.connection) {
                    throw new IOException("the node went away", FakeNode.unavailable());
                }
            }
            if (at == size) {
                return -1;
            }
            int count = (int) Math.min(most, size - at);
            for (int i = 0; i < count; i++) {
                into[from + i] = belongsAt(at + i);
            }
            at += count;
            synchronized (node.lock) {
                exported += count;
            }
            return count;
        }
    }

    private static byte belongsAt(long offset) {
        return (byte) (offset * 31 + (offset >> 10));
    }

    NodeSnapshot importFile(SnapshotId id, Map<String, String> labels, List<String> trusted, InputStream data)
            throws IOException {
        steps.reach(FakeCall.IMPORT_SNAPSHOT, FakeCall.Step.BEFORE);
        int mine;
        synchronized (node.lock) {
            mine = node.mutate(() -> node.connection);
            transfers++;
        }
        try {
            Kept read = read(id, labels, trusted, data);
            steps.reach(FakeCall.IMPORT_SNAPSHOT, FakeCall.Step.MIDWAY);
            synchronized (node.lock) {
                needUnused(id);
                needDisk();
                kept.put(id, usable(read));
            }
            steps.reach(FakeCall.IMPORT_SNAPSHOT, FakeCall.Step.AFTER);
            synchronized (node.lock) {
                checkConnection(mine);
                return seen(need(id));
            }
        } finally {
            synchronized (node.lock) {
                transfers--;
            }
        }
    }

    private Kept read(SnapshotId id, Map<String, String> labels, List<String> trusted, InputStream data)
            throws IOException {
        DataInputStream in = new DataInputStream(data);
        try {
            if (!in.readUTF().equals(MAGIC)) {
                throw damaged(id, "it is no snapshot");
            }
            String signer = in.readUTF();
            String mine;
            synchronized (node.lock) {
                mine = key;
            }
            if (!signer.equals(mine) && !trusted.contains(signer)) {
                throw damaged(id, "it is signed with a key that is not trusted: " + signer);
            }
            Kept read = fields(id, labels, in);
            byte[] buffer = new byte[64 << 10];
            long at = 0;
            int count = in.read(buffer);
            while (count >= 0) {
                for (int i = 0; i < count; i++) {
                    if (buffer[i] != belongsAt(at + i)) {
                        throw damaged(id, "byte " + (at + i) + " is not what it was");
                    }
                }
                at += count;
                synchronized (node.lock) {
                    imported += count;
                }
                count = in.read(buffer);
            }
            if (at != read.bytes) {
                throw damaged(id, at + " bytes (expected: " + read.bytes + ")");
            }
            return read;
        } catch (EOFException e) {
            throw damaged(id, "it ends too early");
        }
    }

    private static Kept fields(SnapshotId id, Map<String, String> labels, DataInputStream in) throws IOException {
        SnapshotKind kind = SnapshotKind.valueOf(in.readUTF());
        BoxId box = BoxId.parse(in.readUTF());
        String sandbox = in.readUTF();
        String image = in.readUTF();
        String runtime = in.readUTF();
        Limits limits = new Limits(in.readLong(), in.readInt(), in.readLong(), in.readInt(), in.readInt());
        List<NodeSnapshot.Held> contexts = new ArrayList<>();
        for (int left = in.readInt(); left > 0; left--) {
            contexts.add(new NodeSnapshot.Held(ContextId.parse(in.readUTF()), Language.parse(in.readUTF())));
        }
        byte[] content = in.readNBytes(in.readInt());
        return new Kept(
                id,
                kind,
                labels,
                box,
                sandbox.isEmpty() ? Optional.empty() : Optional.of(SandboxId.parse(sandbox)),
                image,
                runtime,
                limits,
                contexts,
                content,
                in.readLong(),
                Optional.empty());
    }

    private static AtollException damaged(SnapshotId id, String why) {
        return FakeNode.error(ErrorCode.SNAPSHOT_UNUSABLE, "snapshot " + id + " can't be used: " + why);
    }
}
