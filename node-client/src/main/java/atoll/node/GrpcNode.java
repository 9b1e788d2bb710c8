package atoll.node;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.SnapshotId;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReader;
import atoll.core.file.FileReply;
import atoll.core.file.FileWriter;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;
import atoll.core.node.Box;
import atoll.core.node.BoxAssignment;
import atoll.core.node.BoxSpec;
import atoll.core.node.BoxUsage;
import atoll.core.node.ContextSpec;
import atoll.core.node.ExecutionSpec;
import atoll.core.node.Image;
import atoll.core.node.ImageEvent;
import atoll.core.node.MakeImage;
import atoll.core.node.Node;
import atoll.core.node.NodeContext;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeExecution;
import atoll.core.node.NodeInfo;
import atoll.core.node.NodeProcesses;
import atoll.core.node.NodeSnapshot;
import atoll.core.node.NodeStream;
import atoll.core.node.RestoreBox;
import atoll.core.port.ListeningPort;
import atoll.core.port.Tunnel;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.template.Limits;
import atoll.proto.engine.v1.AttachRequest;
import atoll.proto.engine.v1.BoxRequest;
import atoll.proto.engine.v1.ClaimRequest;
import atoll.proto.engine.v1.ContextRequest;
import atoll.proto.engine.v1.CreateBoxRequest;
import atoll.proto.engine.v1.EngineGrpc;
import atoll.proto.engine.v1.ExecuteRequest;
import atoll.proto.engine.v1.ForgetExecutionsRequest;
import atoll.proto.engine.v1.GetInfoRequest;
import atoll.proto.engine.v1.InterruptRequest;
import atoll.proto.engine.v1.ListBoxesRequest;
import atoll.proto.engine.v1.ListExecutionsRequest;
import atoll.proto.engine.v1.OpenContextRequest;
import atoll.proto.engine.v1.ReadOutputRequest;
import atoll.proto.engine.v1.SampleUsageRequest;
import atoll.proto.engine.v1.UpdateLimitsRequest;
import atoll.proto.engine.v1.WatchBoxesRequest;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ClientInterceptors;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/** An engine, over gRPC. Connects by itself, again and again; every call fails at once while there is no connection. */
public final class GrpcNode implements Node {
    private static final Metadata.Key<String> EPOCH = Metadata.Key.of("atoll-epoch", Metadata.ASCII_STRING_MARSHALLER);
    /** For calls that do no work to speak of. */
    private static final int QUICK_SECONDS = 15;
    /** For calls that start something inside a sandbox, on a busy machine. */
    private static final int SLOW_SECONDS = 120;

    private final ManagedChannel managed;
    private final AutoCloseable afterChannel;
    private final Calls calls;
    private final GrpcProcesses processes;
    private final GrpcFiles files;
    private final GrpcPorts ports;
    private final GrpcSnapshots snapshots;
    private final GrpcImages images;
    private volatile long epoch;

    private GrpcNode(ManagedChannel managed, AutoCloseable afterChannel) {
        this.managed = managed;
        this.afterChannel = afterChannel;
        // Who calls knows how long to wait; the channel's own pauses grow to minutes.
        this.calls = new Calls(
                ClientInterceptors.intercept(managed, new EpochHeader(), new PausedBox.Noticed()),
                managed::resetConnectBackoff);
        this.processes = new GrpcProcesses(calls);
        this.files = new GrpcFiles(calls.channel(), calls::told);
        this.ports = new GrpcPorts(calls.channel(), calls::told);
        this.snapshots = new GrpcSnapshots(calls);
        this.images = new GrpcImages(calls);
    }

    /** The engine that listens on a Unix socket. */
    public static GrpcNode unixSocket(Path socket) {
        UnixChannel unix = UnixChannel.to(socket);
        return new GrpcNode(unix.channel(), unix);
    }

    /** The engine behind a channel, which is shut down with the node. */
    static GrpcNode over(ManagedChannel channel) {
        return new GrpcNode(channel, () -> {});
    }

    private final class EpochHeader implements ClientInterceptor {
        @Override
        public <Q, R> ClientCall<Q, R> interceptCall(MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
            return new SimpleForwardingClientCall<>(next.newCall(method, options)) {
                @Override
                public void start(Listener<R> listener, Metadata headers) {
                    headers.put(EPOCH, Long.toString(epoch));
                    super.start(listener, headers);
                }
            };
        }
    }

    private <Q, R> R quick(MethodDescriptor<Q, R> method, Q request, String what) {
        return unary(method, request, what, QUICK_SECONDS);
    }

    private <Q, R> R unary(MethodDescriptor<Q, R> method, Q request, String what, int seconds) {
        return calls.unary(method, request, what, Duration.ofSeconds(seconds));
    }

    private <Q, M, T> NodeStream<T> stream(
            MethodDescriptor<Q, M> method, Q request, String what, Function<M, T> mapping) {
        return calls.stream(method, request, what, mapping);
    }

    @Override
    public NodeInfo info() {
        return Wire.info(quick(EngineGrpc.getGetInfoMethod(), GetInfoRequest.getDefaultInstance(), "node"));
    }

    @Override
    public void claim(long newEpoch) {
        epoch = newEpoch;
        done(quick(
                EngineGrpc.getClaimMethod(),
                ClaimRequest.newBuilder().setEpoch(newEpoch).build(),
                "claim of the node"));
    }

    /** For answers that say nothing but that it is done. */
    private static void done(Object reply) {
        assert reply != null;
    }

    @Override
    public List<Image> images() {
        return images.images();
    }

    @Override
    public NodeStream<ImageEvent> makeImage(MakeImage request, Optional<InputStream> body) {
        return images.makeImage(request, body);
    }

    @Override
    public long deleteImage(String digest) {
        return images.deleteImage(digest);
    }

    @Override
    public Pruned pruneImages(Collection<String> keepDigests, Instant builtBefore) {
        return images.pruneImages(keepDigests, builtBefore);
    }

    @Override
    public Box createBox(BoxId id, BoxSpec spec) {
        CreateBoxRequest request = CreateBoxRequest.newBuilder()
                .setBoxId(id.toString())
                .setSpec(Wire.box(spec))
                .build();
        return Wire.box(unary(EngineGrpc.getCreateBoxMethod(), request, "start of a sandbox", SLOW_SECONDS));
    }

    @Override
    public Box assignBox(BoxId id, BoxAssignment assignment) {
        return Wire.box(
                quick(EngineGrpc.getAssignBoxMethod(), Wire.assignment(id, assignment), "assignment of a sandbox"));
    }

    @Override
    public Box updateLimits(BoxId id, Limits limits) {
        UpdateLimitsRequest request = UpdateLimitsRequest.newBuilder()
                .setBoxId(id.toString())
                .setLimits(Wire.limits(limits))
                .build();
        return Wire.box(quick(EngineGrpc.getUpdateLimitsMethod(), request, "change of a sandbox's limits"));
    }

    @Override
    public Optional<Box> box(BoxId id) {
        try {
            return Optional.of(Wire.box(quick(EngineGrpc.getGetBoxMethod(), request(id), "sandbox")));
        } catch (AtollException e) {
            if (e.code() == ErrorCode.NOT_FOUND) {
                return Optional.empty();
            }
            throw e;
        }
    }

    private static BoxRequest request(BoxId id) {
        return BoxRequest.newBuilder().setBoxId(id.toString()).build();
    }

    @Override
    public List<Box> boxes() {
        return quick(EngineGrpc.getListBoxesMethod(), ListBoxesRequest.getDefaultInstance(), "sandboxes")
                .getBoxesList()
                .stream()
                .map(Wire::box)
                .toList();
    }

    @Override
    public void deleteBox(BoxId id) {
        done(unary(EngineGrpc.getDeleteBoxMethod(), request(id), "removal of a sandbox", SLOW_SECONDS));
    }

    @Override
    public NodeStream<Box> watchBoxes() {
        return stream(
                EngineGrpc.getWatchBoxesMethod(),
                WatchBoxesRequest.getDefaultInstance(),
                "watch of the sandboxes",
                Wire::box);
    }

    @Override
    public NodeContext openContext(BoxId id, ContextSpec spec) {
        OpenContextRequest request = OpenContextRequest.newBuilder()
                .setBoxId(id.toString())
                .setSpec(Wire.context(spec))
                .build();
        return Wire.context(unary(
                EngineGrpc.getOpenContextMethod(),
                request,
                "start of a " + spec.language() + " context",
                SLOW_SECONDS));
    }

    @Override
    public NodeContext restartContext(BoxId id, ContextId context) {
        return Wire.context(unary(
                EngineGrpc.getRestartContextMethod(), request(id, context), "restart of " + context, SLOW_SECONDS));
    }

    @Override
    public void closeContext(BoxId id, ContextId context) {
        try {
            done(unary(
                    EngineGrpc.getCloseContextMethod(), request(id, context), "closing of " + context, SLOW_SECONDS));
        } catch (AtollException e) {
            if (e.code() != ErrorCode.NOT_FOUND || box(id).isEmpty()) {
                throw e;
            }
        }
    }

    private static ContextRequest request(BoxId id, ContextId context) {
        return ContextRequest.newBuilder()
                .setBoxId(id.toString())
                .setContextId(context.toString())
                .build();
    }

    @Override
    public List<NodeContext> contexts(BoxId id) {
        return quick(EngineGrpc.getListContextsMethod(), request(id), "contexts").getContextsList().stream()
                .map(Wire::context)
                .toList();
    }

    @Override
    public NodeProcesses processes() {
        return processes;
    }

    @Override
    public List<BoxUsage> sampleUsage() {
        return quick(EngineGrpc.getSampleUsageMethod(), SampleUsageRequest.getDefaultInstance(), "use of the sandboxes")
                .getBoxesList()
                .stream()
                .map(Wire::usage)
                .toList();
    }

    @Override
    public NodeStream<NodeEvent> execute(BoxId box, ExecutionSpec spec) {
        ExecuteRequest request = ExecuteRequest.newBuilder()
                .setBoxId(box.toString())
                .setSpec(Wire.execution(spec))
                .setConfirm(spec.confirm())
                .build();
        return stream(EngineGrpc.getExecuteMethod(), request, "execution " + spec.id(), Wire::event);
    }

    @Override
    public NodeStream<NodeEvent> attach(BoxId box, ExecutionId id, long afterSeq) {
        AttachRequest request = AttachRequest.newBuilder()
                .setBoxId(box.toString())
                .setExecutionId(id.toString())
                .setAfterSeq(afterSeq)
                .build();
        return stream(EngineGrpc.getAttachMethod(), request, "execution " + id, Wire::event);
    }

    @Override
    public void interrupt(BoxId box, ExecutionId id) {
        InterruptRequest request = InterruptRequest.newBuilder()
                .setBoxId(box.toString())
                .setExecutionId(id.toString())
                .build();
        done(quick(EngineGrpc.getInterruptMethod(), request, "interruption of " + id));
    }

    @Override
    public List<NodeExecution> executions() {
        return quick(EngineGrpc.getListExecutionsMethod(), ListExecutionsRequest.getDefaultInstance(), "executions")
                .getExecutionsList()
                .stream()
                .map(Wire::execution)
                .toList();
    }

    @Override
    public OutputReader readOutput(BoxId box, ExecutionId id, StandardStream stream, long offset, boolean follow) {
        ReadOutputRequest request = ReadOutputRequest.newBuilder()
                .setBoxId(box.toString())
                .setExecutionId(id.toString())
                .setStream(Wire.stream(stream))
                .setOffset(offset)
                .setFollow(follow)
                .build();
        return calls.output(EngineGrpc.getReadOutputMethod(), request, "output of " + id);
    }

    @Override
    public void forgetExecutions(List<ExecutionId> ids, boolean keepSpool) {
        ForgetExecutionsRequest request = ForgetExecutionsRequest.newBuilder()
                .addAllExecutionIds(ids.stream().map(ExecutionId::toString).toList())
                .setKeepSpool(keepSpool)
                .build();
        done(quick(EngineGrpc.getForgetExecutionsMethod(), request, "executions that are on record"));
    }

    @Override
    public FileReply file(BoxId box, String user, FileOperation operation) {
        return files.file(box, user, operation);
    }

    @Override
    public FileReader readFile(BoxId box, String user, ReadFile what) {
        return files.readFile(box, user, what);
    }

    @Override
    public FileWriter writeFile(BoxId box, String user, WriteFile what) {
        return files.writeFile(box, user, what);
    }

    @Override
    public NodeStream<FileEvent> watchFiles(BoxId box, String user, String path, boolean recursive) {
        return files.watchFiles(box, user, path, recursive);
    }

    @Override
    public List<ListeningPort> ports(BoxId box) {
        return ports.ports(box);
    }

    @Override
    public Tunnel tunnel(BoxId box, int port) {
        return ports.tunnel(box, port);
    }

    @Override
    public Box prepareBox(BoxId id, BoxSpec spec) {
        return snapshots.prepareBox(id, spec);
    }

    @Override
    public Box restoreBox(BoxId id, RestoreBox request) {
        return snapshots.restoreBox(id, request);
    }

    @Override
    public Box pauseBox(BoxId id, SnapshotId snapshot, SnapshotKind kind) {
        return snapshots.pauseBox(id, snapshot, kind);
    }

    @Override
    public Box resumeBox(BoxId id, Optional<BoxId> prepared, BoxAssignment assignment) {
        return snapshots.resumeBox(id, prepared, assignment);
    }

    @Override
    public Box rollbackBox(BoxId id, SnapshotId snapshot, Optional<BoxId> prepared, BoxAssignment assignment) {
        return snapshots.rollbackBox(id, snapshot, prepared, assignment);
    }

    @Override
    public void setDeadline(BoxId id, Optional<Instant> deadline) {
        snapshots.setDeadline(id, deadline);
    }

    @Override
    public NodeSnapshot createSnapshot(BoxId box, SnapshotId id, SnapshotKind kind, Map<String, String> labels) {
        return snapshots.createSnapshot(box, id, kind, labels);
    }

    @Override
    public List<NodeSnapshot> snapshots() {
        return snapshots.snapshots();
    }

    @Override
    public void deleteSnapshot(SnapshotId id) {
        snapshots.deleteSnapshot(id);
    }

    @Override
    public InputStream exportSnapshot(SnapshotId id) {
        return snapshots.exportSnapshot(id);
    }

    @Override
    public NodeSnapshot importSnapshot(
            SnapshotId id, Map<String, String> labels, List<String> trustedKeys, InputStream data) throws IOException {
        return snapshots.importSnapshot(id, labels, trustedKeys, data);
    }

    @Override
    public void close() {
        managed.shutdownNow();
        try {
            boolean ended = managed.awaitTermination(5, TimeUnit.SECONDS);
            if (!ended) {
                System.getLogger(GrpcNode.class.getName())
                        .log(System.Logger.Level.WARNING, "the connection to the node did not close in time");
            }
            afterChannel.close();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (Exception e) {
            throw AtollException.internal("the connection to the node could not be closed", e);
        }
    }
}
