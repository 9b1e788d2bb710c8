package atoll.node;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.SnapshotId;
import atoll.core.node.Box;
import atoll.core.node.BoxAssignment;
import atoll.core.node.BoxSpec;
import atoll.core.node.NodeSnapshot;
import atoll.core.node.NodeSnapshots;
import atoll.core.node.RestoreBox;
import atoll.core.snapshot.SnapshotKind;
import atoll.proto.engine.v1.CreateSnapshotRequest;
import atoll.proto.engine.v1.DeleteSnapshotReply;
import atoll.proto.engine.v1.EngineGrpc;
import atoll.proto.engine.v1.FilePart;
import atoll.proto.engine.v1.ImportBegin;
import atoll.proto.engine.v1.ImportSnapshotRequest;
import atoll.proto.engine.v1.ListSnapshotsRequest;
import atoll.proto.engine.v1.PauseBoxRequest;
import atoll.proto.engine.v1.PrepareBoxRequest;
import atoll.proto.engine.v1.RestoreBoxRequest;
import atoll.proto.engine.v1.ResumeBoxRequest;
import atoll.proto.engine.v1.RollbackBoxRequest;
import atoll.proto.engine.v1.SetDeadlineRequest;
import atoll.proto.engine.v1.Snapshot;
import atoll.proto.engine.v1.SnapshotRequest;
import com.google.protobuf.ByteString;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/** The part of {@link GrpcNode} that is about snapshots, pauses and restores. A file on its way takes about a MiB here, however large it is. */
final class GrpcSnapshots implements NodeSnapshots {
    private static final Duration QUICK = Duration.ofSeconds(15);
    private static final Duration SLOW = Duration.ofMinutes(2);
    /** The memory of a large sandbox takes its time to and from a slow disk. */
    private static final Duration WHOLE_MEMORY = Duration.ofMinutes(15);

    /** Parts of a file on their way: each has up to 256 KiB. */
    private static final int PARTS = 4;

    private static final int PART_BYTES = 256 << 10;

    private final Calls calls;

    GrpcSnapshots(Calls calls) {
        this.calls = calls;
    }

    private <Q> Box box(
            MethodDescriptor<Q, atoll.proto.engine.v1.Box> method, Q request, String what, Duration deadline) {
        return Wire.box(calls.unary(method, request, what, deadline));
    }

    /** For calls that make a box of a snapshot. */
    private <Q> Box revived(MethodDescriptor<Q, atoll.proto.engine.v1.Box> method, Q request, String what) {
        return Wire.box(calls.unary(method, request, what, WHOLE_MEMORY, Statuses::ofSnapshot));
    }

    @Override
    public Box prepareBox(BoxId id, BoxSpec spec) {
        PrepareBoxRequest request = PrepareBoxRequest.newBuilder()
                .setBoxId(id.toString())
                .setSpec(Wire.box(spec))
                .build();
        return box(EngineGrpc.getPrepareBoxMethod(), request, "preparation of a sandbox", SLOW);
    }

    @Override
    public Box restoreBox(BoxId id, RestoreBox request) {
        RestoreBoxRequest.Builder built = RestoreBoxRequest.newBuilder()
                .setBoxId(id.toString())
                .setSnapshotId(request.snapshot().map(SnapshotId::toString).orElse(""))
                .setPausedBoxId(text(request.paused()))
                .setPreparedBoxId(text(request.prepared()))
                .addAllWarmContexts(
                        request.warmContexts().stream().map(Wire::context).toList())
                .putAllLabels(request.labels());
        request.renameContexts().forEach((old, now) -> built.putRenameContexts(old.toString(), now.toString()));
        request.assignment().ifPresent(assignment -> built.setAssignment(Wire.assignment(id, assignment)));
        request.limits().ifPresent(limits -> built.setLimits(Wire.limits(limits)));
        return revived(EngineGrpc.getRestoreBoxMethod(), built.build(), "restore of a sandbox");
    }

    private static String text(Optional<BoxId> id) {
        return id.map(BoxId::toString).orElse("");
    }

    @Override
    public Box pauseBox(BoxId id, SnapshotId snapshot, SnapshotKind kind) {
        PauseBoxRequest request = PauseBoxRequest.newBuilder()
                .setBoxId(id.toString())
                .setSnapshotId(snapshot.toString())
                .setKind(Wire.kind(kind))
                .build();
        return box(EngineGrpc.getPauseBoxMethod(), request, "pause of a sandbox", WHOLE_MEMORY);
    }

    @Override
    public Box resumeBox(BoxId id, Optional<BoxId> prepared, BoxAssignment assignment) {
        ResumeBoxRequest request = ResumeBoxRequest.newBuilder()
                .setBoxId(id.toString())
                .setPreparedBoxId(text(prepared))
                .setAssignment(Wire.assignment(id, assignment))
                .build();
        return revived(EngineGrpc.getResumeBoxMethod(), request, "resumption of a sandbox");
    }

    @Override
    public Box rollbackBox(BoxId id, SnapshotId snapshot, Optional<BoxId> prepared, BoxAssignment assignment) {
        RollbackBoxRequest request = RollbackBoxRequest.newBuilder()
                .setBoxId(id.toString())
                .setSnapshotId(snapshot.toString())
                .setPreparedBoxId(text(prepared))
                .setAssignment(Wire.assignment(id, assignment))
                .build();
        return revived(EngineGrpc.getRollbackBoxMethod(), request, "rollback of a sandbox");
    }

    @Override
    public void setDeadline(BoxId id, Optional<Instant> deadline) {
        SetDeadlineRequest request = SetDeadlineRequest.newBuilder()
                .setBoxId(id.toString())
                .setDeadlineUnixMs(Wire.unixMs(deadline))
                .build();
        Box changed = box(EngineGrpc.getSetDeadlineMethod(), request, "deadline of a sandbox", QUICK);
        assert changed.id().equals(id);
    }

    @Override
    public NodeSnapshot createSnapshot(BoxId box, SnapshotId id, SnapshotKind kind, Map<String, String> labels) {
        CreateSnapshotRequest request = CreateSnapshotRequest.newBuilder()
                .setBoxId(box.toString())
                .setSnapshotId(id.toString())
                .setKind(Wire.kind(kind))
                .putAllLabels(labels)
                .build();
        return Wire.snapshot(
                calls.unary(EngineGrpc.getCreateSnapshotMethod(), request, "snapshot of a sandbox", WHOLE_MEMORY));
    }

    @Override
    public List<NodeSnapshot> snapshots() {
        return calls
                .unary(
                        EngineGrpc.getListSnapshotsMethod(),
                        ListSnapshotsRequest.getDefaultInstance(),
                        "snapshots",
                        QUICK)
                .getSnapshotsList()
                .stream()
                .map(Wire::snapshot)
                .toList();
    }

    @Override
    public void deleteSnapshot(SnapshotId id) {
        DeleteSnapshotReply done =
                calls.unary(EngineGrpc.getDeleteSnapshotMethod(), request(id), "removal of " + id, SLOW);
        assert done != null;
    }

    private static SnapshotRequest request(SnapshotId id) {
        return SnapshotRequest.newBuilder().setSnapshotId(id.toString()).build();
    }

    @Override
    public InputStream exportSnapshot(SnapshotId id) {
        CallStream<FilePart, FilePart> parts = CallStream.start(
                calls.channel().newCall(EngineGrpc.getExportSnapshotMethod(), CallOptions.DEFAULT),
                request(id),
                UnaryOperator.identity(),
                status -> calls.told(Statuses.ofSnapshot(status, "export of " + id)),
                PARTS);
        try {
            return new Parts(parts, parts.next().map(FilePart::getData).orElse(ByteString.EMPTY));
        } catch (InterruptedException e) {
            parts.close();
            Thread.currentThread().interrupt();
            throw GrpcFiles.interrupted();
        } catch (RuntimeException e) {
            parts.close();
            throw e;
        }
    }

    /** A file that comes in parts. */
    private static final class Parts extends InputStream {
        private final CallStream<FilePart, FilePart> parts;
        private ByteBuffer part;
        private boolean over;

        Parts(CallStream<FilePart, FilePart> parts, ByteString first) {
            this.parts = parts;
            this.part = first.asReadOnlyByteBuffer();
        }

        /** Whether there is something to be read. */
        private boolean fill() throws IOException {
            while (!part.hasRemaining() && !over) {
                try {
                    Optional<FilePart> next = parts.next();
                    over = next.isEmpty();
                    part = next.map(FilePart::getData).orElse(ByteString.EMPTY).asReadOnlyByteBuffer();
                } catch (AtollException e) {
                    throw new IOException(e.message(), e);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    throw new IOException("the export was broken off", e);
                }
            }
            return !over;
        }

        @Override
        public int read() throws IOException {
            return fill() ? part.get() & 0xff : -1;
        }

        @Override
        public int read(byte[] into, int from, int most) throws IOException {
            if (most == 0) {
                return 0;
            }
            if (!fill()) {
                return -1;
            }
            int count = Math.min(most, part.remaining());
            part.get(into, from, count);
            return count;
        }

        @Override
        public int available() {
            return part.remaining();
        }

        @Override
        public void close() {
            parts.close();
        }
    }

    @Override
    public NodeSnapshot importSnapshot(
            SnapshotId id, Map<String, String> labels, List<String> trustedKeys, InputStream data) throws IOException {
        ClientCall<ImportSnapshotRequest, Snapshot> call = calls.channel()
                .newCall(
                        EngineGrpc.getImportSnapshotMethod(),
                        CallOptions.DEFAULT.withOnReadyThreshold(Sender.READY_BYTES));
        var upload = new Upload(call, "import of " + id);
        upload.start(ImportSnapshotRequest.newBuilder()
                .setBegin(ImportBegin.newBuilder()
                        .setSnapshotId(id.toString())
                        .putAllLabels(labels)
                        .addAllTrustedKeys(trustedKeys))
                .build());
        try {
            NodeSnapshot imported = Wire.snapshot(upload.send(data));
            upload.done = true;
            return imported;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw GrpcFiles.interrupted();
        } finally {
            upload.close();
        }
    }

    private final class Upload extends Sender<ImportSnapshotRequest, Snapshot> {
        private final ClientCall<ImportSnapshotRequest, Snapshot> call;
        private final String what;
        private volatile @Nullable Snapshot reply;
        private boolean done;

        Upload(ClientCall<ImportSnapshotRequest, Snapshot> call, String what) {
            super(call);
            this.call = call;
            this.what = what;
        }

        void start(ImportSnapshotRequest begin) {
            call.start(this, new Metadata());
            // One more than there will be, so that a call that answers twice is told apart by gRPC.
            call.request(2);
            call.sendMessage(begin);
        }

        @Override
        AtollException failure(Status status) {
            return calls.told(Statuses.ofSnapshot(status, what));
        }

        Snapshot send(InputStream data) throws IOException, InterruptedException {
            byte[] buffer = new byte[PART_BYTES];
            int count = data.readNBytes(buffer, 0, buffer.length);
            // A node that has all it needs may say so before it has all there is.
            while (count > 0
                    && taken(ImportSnapshotRequest.newBuilder()
                            .setData(ByteString.copyFrom(buffer, 0, count))
                            .build())) {
                count = data.readNBytes(buffer, 0, buffer.length);
            }
            call.halfClose();
            awaitEnd();
            Snapshot said = reply;
            if (said == null) {
                throw AtollException.internal("the node took a snapshot and said nothing", null);
            }
            return said;
        }

        @Override
        public void onMessage(Snapshot message) {
            reply = message;
        }

        /** A call that was not finished leaves nothing on the node. */
        void close() {
            if (!done) {
                call.cancel("the import was broken off", null);
            }
        }
    }
}
