package atoll.node;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.node.BoxAssignment;
import atoll.core.node.NodeSnapshot;
import atoll.core.node.RestoreBox;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.testing.FakeNode;
import atoll.proto.engine.v1.AssignBoxRequest;
import atoll.proto.engine.v1.Box;
import atoll.proto.engine.v1.CreateSnapshotRequest;
import atoll.proto.engine.v1.DeleteSnapshotReply;
import atoll.proto.engine.v1.ImportBegin;
import atoll.proto.engine.v1.ImportSnapshotRequest;
import atoll.proto.engine.v1.ListSnapshotsReply;
import atoll.proto.engine.v1.PauseBoxRequest;
import atoll.proto.engine.v1.PrepareBoxRequest;
import atoll.proto.engine.v1.RestoreBoxRequest;
import atoll.proto.engine.v1.ResumeBoxRequest;
import atoll.proto.engine.v1.RollbackBoxRequest;
import atoll.proto.engine.v1.SetDeadlineRequest;
import atoll.proto.engine.v1.Snapshot;
import atoll.proto.engine.v1.SnapshotRequest;
import atoll.proto.exec.v1.Context;
import com.google.protobuf.ByteString;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;

/** The part of {@link FakeEngine} that is about snapshots, pauses and restores. */
final class FakeEngineSnapshots {
    private static final int PART_BYTES = 256 << 10;

    private final FakeNode node;

    FakeEngineSnapshots(FakeNode node) {
        this.node = node;
    }

    static BoxAssignment assignment(AssignBoxRequest request) {
        return new BoxAssignment(
                SandboxId.parse(request.getSandboxId()),
                request.getHostname(),
                request.getEnvMap(),
                FakeEngine.limits(request.getLimits()),
                moment(request.getDeadlineUnixMs()));
    }

    private static Optional<Instant> moment(long unixMs) {
        return unixMs == 0 ? Optional.empty() : Optional.of(Instant.ofEpochMilli(unixMs));
    }

    static Context held(NodeSnapshot.Held held) {
        return Context.newBuilder()
                .setContextId(held.id().toString())
                .setLanguage(held.language().text())
                .build();
    }

    private static Optional<BoxId> box(String text) {
        return text.isEmpty() ? Optional.empty() : Optional.of(BoxId.parse(text));
    }

    Box prepareBox(PrepareBoxRequest request) {
        return FakeEngine.box(node.prepareBox(BoxId.parse(request.getBoxId()), FakeEngine.spec(request.getSpec())));
    }

    Box restoreBox(RestoreBoxRequest request) {
        Map<ContextId, ContextId> renames = new HashMap<>();
        request.getRenameContextsMap().forEach((old, now) -> renames.put(ContextId.parse(old), ContextId.parse(now)));
        return FakeEngine.box(node.restoreBox(
                BoxId.parse(request.getBoxId()),
                new RestoreBox(
                        request.getSnapshotId().isEmpty()
                                ? Optional.empty()
                                : Optional.of(SnapshotId.parse(request.getSnapshotId())),
                        box(request.getPausedBoxId()),
                        box(request.getPreparedBoxId()),
                        request.hasAssignment() ? Optional.of(assignment(request.getAssignment())) : Optional.empty(),
                        renames,
                        request.getWarmContextsList().stream()
                                .map(FakeEngine::context)
                                .toList(),
                        request.getLabelsMap(),
                        request.hasLimits() ? Optional.of(FakeEngine.limits(request.getLimits())) : Optional.empty())));
    }

    Box pauseBox(PauseBoxRequest request) {
        return FakeEngine.box(node.pauseBox(
                BoxId.parse(request.getBoxId()),
                SnapshotId.parse(request.getSnapshotId()),
                kind(request.getKind().name())));
    }

    Box resumeBox(ResumeBoxRequest request) {
        return FakeEngine.box(node.resumeBox(
                BoxId.parse(request.getBoxId()), box(request.getPreparedBoxId()), assignment(request.getAssignment())));
    }

    Box rollbackBox(RollbackBoxRequest request) {
        return FakeEngine.box(node.rollbackBox(
                BoxId.parse(request.getBoxId()),
                SnapshotId.parse(request.getSnapshotId()),
                box(request.getPreparedBoxId()),
                assignment(request.getAssignment())));
    }

    Box setDeadline(SetDeadlineRequest request) {
        BoxId id = BoxId.parse(request.getBoxId());
        node.setDeadline(id, moment(request.getDeadlineUnixMs()));
        return FakeEngine.box(node.box(id).orElseThrow());
    }

    private static SnapshotKind kind(String name) {
        return SnapshotKind.valueOf(name.substring("SNAPSHOT_KIND_".length()));
    }

    Snapshot createSnapshot(CreateSnapshotRequest request) {
        SnapshotKind kind = kind(request.getKind().name());
        return snapshot(node.createSnapshot(
                BoxId.parse(request.getBoxId()),
                SnapshotId.parse(request.getSnapshotId()),
                kind,
                request.getLabelsMap()));
    }

    private static Snapshot snapshot(NodeSnapshot snapshot) {
        if (snapshot.box().isEmpty()) {
            // Of one whose manifest it can't read the engine knows no more.
            return Snapshot.newBuilder()
                    .setSnapshotId(snapshot.id().toString())
                    .setUnusable(snapshot.unusable().orElse(""))
                    .build();
        }
        return Snapshot.newBuilder()
                .setSnapshotId(snapshot.id().toString())
                .setKind(atoll.proto.engine.v1.SnapshotKind.valueOf(
                        "SNAPSHOT_KIND_" + snapshot.kind().name()))
                .putAllLabels(snapshot.labels())
                .setBoxId(snapshot.box().get().toString())
                .setSandboxId(snapshot.sandbox().map(SandboxId::toString).orElse(""))
                .setImageDigest(snapshot.imageDigest())
                .setRuntimeVersion(snapshot.runtimeVersion())
                .setSizeBytes(snapshot.sizeBytes())
                .setCreatedAtUnixMs(snapshot.createdAt().toEpochMilli())
                .setLimits(Wire.limits(snapshot.limits()))
                .addAllContexts(snapshot.contexts().stream()
                        .map(FakeEngineSnapshots::held)
                        .toList())
                .setUnusable(snapshot.unusable().orElse(""))
                .setStoppedMs((int) snapshot.stopped().toMillis())
                .build();
    }

    ListSnapshotsReply listSnapshots() {
        return ListSnapshotsReply.newBuilder()
                .addAllSnapshots(node.snapshots().stream()
                        .map(FakeEngineSnapshots::snapshot)
                        .toList())
                .build();
    }

    DeleteSnapshotReply deleteSnapshot(SnapshotRequest request) {
        node.deleteSnapshot(SnapshotId.parse(request.getSnapshotId()));
        return DeleteSnapshotReply.getDefaultInstance();
    }

    InputStream export(SnapshotRequest request) {
        return node.exportSnapshot(SnapshotId.parse(request.getSnapshotId()));
    }

    /** The next part of a file. */
    static Optional<ByteString> part(InputStream file) {
        try {
            byte[] data = file.readNBytes(PART_BYTES);
            return data.length == 0 ? Optional.empty() : Optional.of(ByteString.copyFrom(data));
        } catch (IOException e) {
            throw FakeNode.unavailable(e);
        }
    }

    static void close(InputStream file) {
        try {
            file.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    Snapshot importFile(Parts parts) throws IOException {
        ImportBegin begin = parts.begin();
        return snapshot(node.importSnapshot(
                SnapshotId.parse(begin.getSnapshotId()),
                begin.getLabelsMap(),
                begin.getTrustedKeysList(),
                parts.data()));
    }

    /** The messages of an import as a file. */
    static final class Parts implements StreamObserver<ImportSnapshotRequest> {
        private final Runnable more;
        /** Empty at the end. */
        private final LinkedBlockingQueue<Optional<ImportSnapshotRequest>> messages = new LinkedBlockingQueue<>();

        private final AtomicBoolean cancelled = new AtomicBoolean();

        Parts(Runnable more) {
            this.more = more;
        }

        @Override
        public void onNext(ImportSnapshotRequest message) {
            messages.add(Optional.of(message));
        }

        @Override
        public void onError(Throwable t) {
            cancelled();
        }

        @Override
        public void onCompleted() {
            messages.add(Optional.empty());
        }

        void cancelled() {
            cancelled.set(true);
            messages.add(Optional.empty());
        }

        private Optional<ImportSnapshotRequest> take() throws IOException {
            try {
                Optional<ImportSnapshotRequest> message = messages.take();
                if (cancelled.get()) {
                    throw new IOException("the import was broken off");
                }
                if (message.isPresent()) {
                    more.run();
                }
                return message;
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IOException("the import was broken off", e);
            }
        }

        ImportBegin begin() throws IOException {
            return take().orElseThrow().getBegin();
        }

        InputStream data() {
            return new InputStream() {
                private InputStream part = InputStream.nullInputStream();
                private boolean over;

                @Override
                public int read() throws IOException {
                    byte[] one = new byte[1];
                    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
                }

                @Override
                public int read(byte[] into, int from, int most) throws IOException {
                    int count = part.read(into, from, most);
                    while (count < 0 && !over) {
                        Optional<ImportSnapshotRequest> next = take();
                        over = next.isEmpty();
                        part = next.map(message -> message.getData().newInput()).orElse(InputStream.nullInputStream());
                        count = part.read(into, from, most);
                    }
                    return count;
                }
            };
        }
    }
}
