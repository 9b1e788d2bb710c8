package atoll.node;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.ProcessId;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.file.FileReader;
import atoll.core.file.FileStat;
import atoll.core.file.FileWriter;
import atoll.core.node.BoxState;
import atoll.core.node.ContextSpec;
import atoll.core.node.ExecutionSpec;
import atoll.core.node.NodeContext;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeInfo;
import atoll.core.node.NodeProcess;
import atoll.core.node.NodeStream;
import atoll.core.port.Tunnel;
import atoll.core.process.InputPosition;
import atoll.core.process.OutputChoice;
import atoll.core.process.SignalTarget;
import atoll.core.process.TerminalSize;
import atoll.core.template.Limits;
import atoll.core.testing.FakeNode;
import atoll.proto.engine.v1.AssignBoxRequest;
import atoll.proto.engine.v1.AttachRequest;
import atoll.proto.engine.v1.Box;
import atoll.proto.engine.v1.BoxEndReason;
import atoll.proto.engine.v1.BoxRequest;
import atoll.proto.engine.v1.BoxSpec;
import atoll.proto.engine.v1.BoxUsage;
import atoll.proto.engine.v1.ClaimReply;
import atoll.proto.engine.v1.ClaimRequest;
import atoll.proto.engine.v1.CloseContextReply;
import atoll.proto.engine.v1.ContextRequest;
import atoll.proto.engine.v1.CreateBoxRequest;
import atoll.proto.engine.v1.CreateSnapshotRequest;
import atoll.proto.engine.v1.DeleteBoxReply;
import atoll.proto.engine.v1.DeleteImageReply;
import atoll.proto.engine.v1.DeleteSnapshotReply;
import atoll.proto.engine.v1.EngineGrpc;
import atoll.proto.engine.v1.EngineInfo;
import atoll.proto.engine.v1.ExecuteRequest;
import atoll.proto.engine.v1.ExecutionRecord;
import atoll.proto.engine.v1.FileCall;
import atoll.proto.engine.v1.FilePart;
import atoll.proto.engine.v1.ForgetExecutionsReply;
import atoll.proto.engine.v1.ForgetExecutionsRequest;
import atoll.proto.engine.v1.GetInfoRequest;
import atoll.proto.engine.v1.ImageRequest;
import atoll.proto.engine.v1.ImportSnapshotRequest;
import atoll.proto.engine.v1.InterruptReply;
import atoll.proto.engine.v1.InterruptRequest;
import atoll.proto.engine.v1.ListBoxesReply;
import atoll.proto.engine.v1.ListBoxesRequest;
import atoll.proto.engine.v1.ListContextsReply;
import atoll.proto.engine.v1.ListExecutionsReply;
import atoll.proto.engine.v1.ListExecutionsRequest;
import atoll.proto.engine.v1.ListImagesReply;
import atoll.proto.engine.v1.ListImagesRequest;
import atoll.proto.engine.v1.ListProcessesReply;
import atoll.proto.engine.v1.ListProcessesRequest;
import atoll.proto.engine.v1.ListSnapshotsReply;
import atoll.proto.engine.v1.ListSnapshotsRequest;
import atoll.proto.engine.v1.MakeImageEvent;
import atoll.proto.engine.v1.MakeImageRequest;
import atoll.proto.engine.v1.OpenContextRequest;
import atoll.proto.engine.v1.OutputPiece;
import atoll.proto.engine.v1.PauseBoxRequest;
import atoll.proto.engine.v1.PrepareBoxRequest;
import atoll.proto.engine.v1.ProcessRequest;
import atoll.proto.engine.v1.PruneImagesReply;
import atoll.proto.engine.v1.PruneImagesRequest;
import atoll.proto.engine.v1.ReadFileCall;
import atoll.proto.engine.v1.ReadOutputRequest;
import atoll.proto.engine.v1.ResizeTerminalReply;
import atoll.proto.engine.v1.ResizeTerminalRequest;
import atoll.proto.engine.v1.RestoreBoxRequest;
import atoll.proto.engine.v1.ResumeBoxRequest;
import atoll.proto.engine.v1.RollbackBoxRequest;
import atoll.proto.engine.v1.Runtime;
import atoll.proto.engine.v1.SampleUsageReply;
import atoll.proto.engine.v1.SampleUsageRequest;
import atoll.proto.engine.v1.SetDeadlineRequest;
import atoll.proto.engine.v1.SignalProcessReply;
import atoll.proto.engine.v1.SignalProcessRequest;
import atoll.proto.engine.v1.Snapshot;
import atoll.proto.engine.v1.SnapshotRequest;
import atoll.proto.engine.v1.StartProcessRequest;
import atoll.proto.engine.v1.TunnelCall;
import atoll.proto.engine.v1.UpdateLimitsRequest;
import atoll.proto.engine.v1.WatchBoxesRequest;
import atoll.proto.engine.v1.WatchFilesCall;
import atoll.proto.engine.v1.WriteFileCall;
import atoll.proto.engine.v1.WriteInputRequest;
import atoll.proto.exec.v1.Context;
import atoll.proto.exec.v1.ContextState;
import atoll.proto.exec.v1.ExecutionError;
import atoll.proto.exec.v1.ExecutionEvent;
import atoll.proto.exec.v1.ExitReason;
import atoll.proto.exec.v1.Finished;
import atoll.proto.exec.v1.Gap;
import atoll.proto.exec.v1.GuestProcess;
import atoll.proto.exec.v1.ListGuestProcessesReply;
import atoll.proto.exec.v1.ListPortsReply;
import atoll.proto.exec.v1.ListeningPort;
import atoll.proto.exec.v1.Output;
import atoll.proto.exec.v1.Process;
import atoll.proto.exec.v1.Result;
import atoll.proto.exec.v1.SignalRequest;
import atoll.proto.exec.v1.Started;
import atoll.proto.exec.v1.Stream;
import atoll.proto.exec.v1.TunnelEnd;
import atoll.proto.exec.v1.TunnelMessage;
import atoll.proto.exec.v1.TunnelOpened;
import atoll.proto.exec.v1.WriteInputReply;
import atoll.proto.file.v1.FileEvent;
import atoll.proto.file.v1.FilePiece;
import atoll.proto.file.v1.FileReply;
import atoll.proto.file.v1.WriteFileOpen;
import atoll.proto.file.v1.WriteFileReply;
import com.google.protobuf.ByteString;
import io.grpc.Deadline;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/** A {@link FakeNode} behind the engine's protocol: the other half of {@code Wire}, written once. */
final class FakeEngine extends EngineGrpc.EngineImplBase {
    private final FakeNode node;
    private final FakeEngineSnapshots snapshots;

    FakeEngine(FakeNode node) {
        this.node = node;
        this.snapshots = new FakeEngineSnapshots(node);
    }

    private interface Streaming<T> {
        Optional<T> next() throws InterruptedException;
    }

    private static <R> void answer(StreamObserver<R> reply, Supplier<R> work) {
        try {
            R value = work.get();
            reply.onNext(value);
            reply.onCompleted();
        } catch (AtollException e) {
            reply.onError(exception(e));
        }
    }

    private static <T, R> void stream(
            StreamObserver<R> reply, Supplier<? extends Streaming<T>> open, Runnable close, Function<T, R> mapping) {
        ServerCallStreamObserver<R> call = (ServerCallStreamObserver<R>) reply;
        call.setOnCancelHandler(() -> {});
        Thread sender = Thread.ofVirtual().unstarted(() -> {
            try {
                Streaming<T> source = open.get();
                Optional<T> item = source.next();
                while (item.isPresent() && !call.isCancelled()) {
                    while (!call.isReady() && !call.isCancelled()) {
                        LockSupport.parkNanos(200_000);
                    }
                    call.onNext(mapping.apply(item.get()));
                    item = source.next();
                }
                if (!call.isCancelled()) {
                    call.onCompleted();
                }
            } catch (AtollException e) {
                if (!call.isCancelled()) {
                    call.onError(exception(e));
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            } finally {
                close.run();
            }
        });
        sender.start();
    }

    private static <T, R> void nodeStream(
            StreamObserver<R> reply, Supplier<NodeStream<T>> open, Function<T, R> mapping) {
        stream(reply, () -> open.get()::next, () -> {}, mapping);
    }

    private static Status status(AtollException e) {
        return switch (e.code()) {
            case PROGRAM_NOT_FOUND -> Status.NOT_FOUND.withDescription(e.message());
            case NODE_FULL -> Status.RESOURCE_EXHAUSTED.withDescription(e.message());
            default -> FakeEngineFiles.status(e);
        };
    }

    private static StatusRuntimeException exception(AtollException e) {
        Metadata trailers = new Metadata();
        if (e.code() == ErrorCode.SANDBOX_PAUSED) {
            trailers.put(PausedBox.STATE, "paused");
        }
        return status(e).asRuntimeException(trailers);
    }

    @Override
    public void getInfo(GetInfoRequest request, StreamObserver<EngineInfo> reply) {
        answer(reply, () -> {
            NodeInfo info = node.info();
            return EngineInfo.newBuilder()
                    .setInstance(info.instance())
                    .setMemoryTotalBytes(info.memoryTotalBytes())
                    .setDiskTotalBytes(info.diskTotalBytes())
                    .setDiskAvailableBytes(info.diskAvailableBytes())
                    .setClaimedEpoch(info.claimedEpoch())
                    .setSnapshotKey(info.snapshotKey())
                    .addAllRuntimeVersions(info.runtimeVersions())
                    .addAllRecipes(info.recipes())
                    .addAllRuntimes(info.runtimes().stream()
                            .map(runtime -> Runtime.newBuilder()
                                    .setName(runtime.name())
                                    .setVersion(runtime.version())
                                    .setAvailable(runtime.available())
                                    .setProblem(runtime.problem())
                                    .addAllLacks(runtime.lacks())
                                    .build())
                            .toList())
                    .build();
        });
    }

    @Override
    public void claim(ClaimRequest request, StreamObserver<ClaimReply> reply) {
        answer(reply, () -> {
            node.claim(request.getEpoch());
            return ClaimReply.getDefaultInstance();
        });
    }

    @Override
    public void listImages(ListImagesRequest request, StreamObserver<ListImagesReply> reply) {
        answer(
                reply,
                () -> ListImagesReply.newBuilder()
                        .addAllImages(node.images().stream()
                                .map(FakeEngineImages::image)
                                .toList())
                        .build());
    }

    static ContextSpec context(atoll.proto.exec.v1.ContextSpec spec) {
        return new ContextSpec(
                ContextId.parse(spec.getContextId()),
                Language.parse(spec.getLanguage()),
                spec.getCwd(),
                spec.getEnvMap());
    }

    static Limits limits(atoll.proto.exec.v1.Limits limits) {
        return new Limits(
                limits.getMemoryBytes(),
                limits.getCpuMillis(),
                limits.getDiskBytes(),
                limits.getMaxProcesses(),
                limits.getMaxOpenFiles());
    }

    @Override
    public void createBox(CreateBoxRequest request, StreamObserver<Box> reply) {
        answer(reply, () -> {
            return box(node.createBox(BoxId.parse(request.getBoxId()), spec(request.getSpec())));
        });
    }

    static atoll.core.node.BoxSpec spec(BoxSpec spec) {
        return new atoll.core.node.BoxSpec(
                spec.getImageDigest(),
                limits(spec.getLimits()),
                spec.getWarmContextsList().stream().map(FakeEngine::context).toList(),
                spec.getLabelsMap(),
                spec.getRuntime());
    }

    static Box box(atoll.core.node.Box box) {
        Box.Builder built = Box.newBuilder()
                .setBoxId(box.id().toString())
                .setState(state(box.state()))
                .setSandboxId(box.sandboxId().map(SandboxId::toString).orElse(""))
                .setLimits(Wire.limits(box.limits().orElse(Limits.DEFAULT)))
                .setRestoredFrom(box.restoredFrom().map(SnapshotId::toString).orElse(""))
                .setPauseSnapshotId(box.pausedIn().map(SnapshotId::toString).orElse(""))
                .setPauseKind(box.pauseKind()
                        .map(Wire::kind)
                        .orElse(atoll.proto.engine.v1.SnapshotKind.SNAPSHOT_KIND_UNSPECIFIED))
                .setPauseSnapshotBytes(box.pauseBytes().orElse(0))
                .addAllContexts(
                        box.contexts().stream().map(FakeEngineSnapshots::held).toList())
                .setDeadlineUnixMs(box.deadline().map(Instant::toEpochMilli).orElse(0L))
                .setSpec(BoxSpec.newBuilder()
                        .putAllLabels(box.labels())
                        .addAllWarmContexts(
                                box.warmContexts().stream().map(Wire::context).toList()));
        box.end()
                .ifPresent(end -> built.setEndDetail(end.detail())
                        .setEndReason(
                                switch (end.reason()) {
                                    case DELETED -> BoxEndReason.BOX_END_REASON_DELETED;
                                    case OUT_OF_MEMORY -> BoxEndReason.BOX_END_REASON_OUT_OF_MEMORY;
                                    case CRASHED, MAIN_EXITED -> BoxEndReason.BOX_END_REASON_EXITED;
                                    case START_FAILED -> BoxEndReason.BOX_END_REASON_START_FAILED;
                                    case EXPIRED, IDLE -> BoxEndReason.BOX_END_REASON_DEADLINE;
                                    case LOST -> BoxEndReason.BOX_END_REASON_LOST;
                                }));
        return built.build();
    }

    private static atoll.proto.engine.v1.BoxState state(BoxState state) {
        return switch (state) {
            case CREATING -> atoll.proto.engine.v1.BoxState.BOX_STATE_CREATING;
            case READY -> atoll.proto.engine.v1.BoxState.BOX_STATE_READY;
            case PREPARED -> atoll.proto.engine.v1.BoxState.BOX_STATE_PREPARED;
            case PAUSING -> atoll.proto.engine.v1.BoxState.BOX_STATE_PAUSING;
            case PAUSED -> atoll.proto.engine.v1.BoxState.BOX_STATE_PAUSED;
            case RESUMING -> atoll.proto.engine.v1.BoxState.BOX_STATE_RESUMING;
            case RECONNECTING -> atoll.proto.engine.v1.BoxState.BOX_STATE_RECONNECTING;
            case ENDED -> atoll.proto.engine.v1.BoxState.BOX_STATE_ENDED;
            case DELETED -> atoll.proto.engine.v1.BoxState.BOX_STATE_DELETED;
        };
    }

    @Override
    public void assignBox(AssignBoxRequest request, StreamObserver<Box> reply) {
        answer(
                reply,
                () -> box(node.assignBox(BoxId.parse(request.getBoxId()), FakeEngineSnapshots.assignment(request))));
    }

    @Override
    public void updateLimits(UpdateLimitsRequest request, StreamObserver<Box> reply) {
        answer(reply, () -> box(node.updateLimits(BoxId.parse(request.getBoxId()), limits(request.getLimits()))));
    }

    @Override
    public void getBox(BoxRequest request, StreamObserver<Box> reply) {
        answer(
                reply,
                () -> node.box(BoxId.parse(request.getBoxId()))
                        .map(FakeEngine::box)
                        .orElseThrow(() -> new AtollException(ErrorCode.NOT_FOUND, "no such box", "", "")));
    }

    @Override
    public void listBoxes(ListBoxesRequest request, StreamObserver<ListBoxesReply> reply) {
        answer(
                reply,
                () -> ListBoxesReply.newBuilder()
                        .addAllBoxes(node.boxes().stream().map(FakeEngine::box).toList())
                        .build());
    }

    @Override
    public void deleteBox(BoxRequest request, StreamObserver<DeleteBoxReply> reply) {
        answer(reply, () -> {
            node.deleteBox(BoxId.parse(request.getBoxId()));
            return DeleteBoxReply.getDefaultInstance();
        });
    }

    @Override
    public void watchBoxes(WatchBoxesRequest request, StreamObserver<Box> reply) {
        nodeStream(reply, node::watchBoxes, FakeEngine::box);
    }

    @Override
    public void openContext(OpenContextRequest request, StreamObserver<Context> reply) {
        answer(reply, () -> context(node.openContext(BoxId.parse(request.getBoxId()), context(request.getSpec()))));
    }

    private static Context context(NodeContext context) {
        return Context.newBuilder()
                .setContextId(context.id().toString())
                .setVersion(context.version())
                .setCwd(context.cwd())
                .setState(
                        ContextState.valueOf("CONTEXT_STATE_" + context.state().name()))
                .setRestarts(context.restarts())
                .setDetail(context.detail())
                .build();
    }

    @Override
    public void restartContext(ContextRequest request, StreamObserver<Context> reply) {
        answer(
                reply,
                () -> context(
                        node.restartContext(BoxId.parse(request.getBoxId()), ContextId.parse(request.getContextId()))));
    }

    @Override
    public void closeContext(ContextRequest request, StreamObserver<CloseContextReply> reply) {
        answer(reply, () -> {
            node.closeContext(BoxId.parse(request.getBoxId()), ContextId.parse(request.getContextId()));
            return CloseContextReply.getDefaultInstance();
        });
    }

    @Override
    public void listContexts(BoxRequest request, StreamObserver<ListContextsReply> reply) {
        answer(
                reply,
                () -> ListContextsReply.newBuilder()
                        .addAllContexts(node.contexts(BoxId.parse(request.getBoxId())).stream()
                                .map(FakeEngine::context)
                                .toList())
                        .build());
    }

    @Override
    public void sampleUsage(SampleUsageRequest request, StreamObserver<SampleUsageReply> reply) {
        answer(
                reply,
                () -> SampleUsageReply.newBuilder()
                        .addAllBoxes(node.sampleUsage().stream()
                                .map(usage -> BoxUsage.newBuilder()
                                        .setBoxId(usage.box().toString())
                                        .setSandboxId(usage.sandboxId()
                                                .map(SandboxId::toString)
                                                .orElse(""))
                                        .setAtUnixMs(usage.at().toEpochMilli())
                                        .setCpuUs(usage.cpu().toNanos() / 1000)
                                        .setThrottledUs(usage.throttled().toNanos() / 1000)
                                        .setMemoryBytes(usage.memoryBytes())
                                        .setMemoryPeakBytes(usage.memoryPeakBytes())
                                        .setDiskBytes(usage.diskBytes())
                                        .setProcesses(usage.processes())
                                        .setLimits(Wire.limits(usage.limits().orElseThrow()))
                                        .build())
                                .toList())
                        .build());
    }

    @Override
    public void startProcess(StartProcessRequest request, StreamObserver<Process> reply) {
        answer(
                reply,
                () -> process(
                        node.processes().start(BoxId.parse(request.getBoxId()), ProcessWire.spec(request.getSpec()))));
    }

    private static Process process(NodeProcess process) {
        Process.Builder built = Process.newBuilder()
                .setSpec(ProcessWire.spec(process.spec()))
                .setPid(process.pid())
                .setRunning(process.finish().isEmpty())
                .setStartedAtUnixMs(process.startedAt().toEpochMilli())
                .setStdinOffset(process.stdinOffset())
                .setStdinClosed(process.stdinClosed())
                .setStdoutBytes(process.stdoutBytes())
                .setStderrBytes(process.stderrBytes());
        process.finish().ifPresent(finish -> built.setFinished(finish(finish)));
        return built.build();
    }

    @Override
    public void getProcess(ProcessRequest request, StreamObserver<Process> reply) {
        answer(
                reply,
                () -> process(node.processes()
                        .get(BoxId.parse(request.getBoxId()), ProcessId.parse(request.getProcessId()))));
    }

    @Override
    public void listProcesses(ListProcessesRequest request, StreamObserver<ListProcessesReply> reply) {
        answer(reply, () -> {
            Optional<BoxId> box =
                    request.getBoxId().isEmpty() ? Optional.empty() : Optional.of(BoxId.parse(request.getBoxId()));
            return ListProcessesReply.newBuilder()
                    .addAllProcesses(node.processes().list(box).stream()
                            .map(held -> atoll.proto.engine.v1.NodeProcess.newBuilder()
                                    .setBoxId(held.box().toString())
                                    .setSandboxId(held.sandboxId()
                                            .map(SandboxId::toString)
                                            .orElse(""))
                                    .setProcess(process(held.process()))
                                    .build())
                            .toList())
                    .build();
        });
    }

    @Override
    public void waitProcess(ProcessRequest request, StreamObserver<Process> reply) {
        CompletableFuture<NodeProcess> told = node.processes()
                .ended(BoxId.parse(request.getBoxId()), ProcessId.parse(request.getProcessId()))
                .whenComplete((process, failure) -> {
                    if (failure instanceof AtollException e) {
                        reply.onError(exception(e));
                    } else {
                        reply.onNext(process(process));
                        reply.onCompleted();
                    }
                });
        assertThat(told).isNotNull();
    }

    @Override
    public void writeInput(WriteInputRequest request, StreamObserver<WriteInputReply> reply) {
        answer(reply, () -> {
            atoll.proto.exec.v1.WriteInputRequest input = request.getInput();
            InputPosition position = node.processes()
                    .write(
                            BoxId.parse(request.getBoxId()),
                            ProcessId.parse(input.getProcessId()),
                            input.hasOffset() ? OptionalLong.of(input.getOffset()) : OptionalLong.empty(),
                            input.getData().asReadOnlyByteBuffer(),
                            input.getClose(),
                            limit());
            return WriteInputReply.newBuilder()
                    .setOffset(position.offset())
                    .setClosed(position.closed())
                    .build();
        });
    }

    /** What the caller's deadline leaves, less what the answer takes. */
    private static Duration limit() {
        Deadline deadline = io.grpc.Context.current().getDeadline();
        long millis = deadline == null ? 60_000 : deadline.timeRemaining(TimeUnit.MILLISECONDS);
        return Duration.ofMillis(Math.max(1, millis * 9 / 10));
    }

    @Override
    public void signalProcess(SignalProcessRequest request, StreamObserver<SignalProcessReply> reply) {
        answer(reply, () -> {
            BoxId box = BoxId.parse(request.getBoxId());
            SignalRequest signal = request.getSignal();
            if (signal.getPid() != 0) {
                node.processes().signalGuest(box, signal.getPid(), signal.getSignal());
            } else {
                SignalTarget target =
                        SignalTarget.valueOf(signal.getTarget().name().substring("SIGNAL_TARGET_".length()));
                node.processes().signal(box, ProcessId.parse(signal.getProcessId()), signal.getSignal(), target);
            }
            return SignalProcessReply.getDefaultInstance();
        });
    }

    @Override
    public void resizeTerminal(ResizeTerminalRequest request, StreamObserver<ResizeTerminalReply> reply) {
        answer(reply, () -> {
            node.processes()
                    .resize(
                            BoxId.parse(request.getBoxId()),
                            ProcessId.parse(request.getResize().getProcessId()),
                            new TerminalSize(
                                    request.getResize().getSize().getColumns(),
                                    request.getResize().getSize().getRows()));
            return ResizeTerminalReply.getDefaultInstance();
        });
    }

    @Override
    public void listGuestProcesses(BoxRequest request, StreamObserver<ListGuestProcessesReply> reply) {
        answer(
                reply,
                () -> ListGuestProcessesReply.newBuilder()
                        .addAllProcesses(node.processes().guests(BoxId.parse(request.getBoxId())).stream()
                                .map(guest -> GuestProcess.newBuilder()
                                        .setPid(guest.pid())
                                        .setParentPid(guest.parentPid())
                                        .setUid(guest.uid())
                                        .setUser(guest.user())
                                        .setCommand(guest.command())
                                        .addAllArgv(guest.argv())
                                        .setState(guest.state())
                                        .setCpuMs(guest.cpu().toMillis())
                                        .setMemoryBytes(guest.memoryBytes())
                                        .setStartedAtUnixMs(guest.startedAt().toEpochMilli())
                                        .setProcessId(guest.processId()
                                                .map(ProcessId::toString)
                                                .orElse(""))
                                        .build())
                                .toList())
                        .build());
    }

    @Override
    public void execute(ExecuteRequest request, StreamObserver<ExecutionEvent> reply) {
        nodeStream(
                reply,
                () -> node.execute(
                        BoxId.parse(request.getBoxId()),
                        new ExecutionSpec(
                                ExecutionId.parse(request.getSpec().getExecutionId()),
                                ContextId.parse(request.getSpec().getContextId()),
                                request.getSpec().getCode(),
                                Duration.ofMillis(request.getSpec().getTimeoutMs()),
                                request.getSpec().getEnvMap())),
                FakeEngine::event);
    }

    @Override
    public void attach(AttachRequest request, StreamObserver<ExecutionEvent> reply) {
        nodeStream(
                reply,
                () -> request.getExecutionId().startsWith(ProcessId.PREFIX)
                        ? node.processes()
                                .attach(
                                        BoxId.parse(request.getBoxId()),
                                        ProcessId.parse(request.getExecutionId()),
                                        request.getAfterSeq())
                        : node.attach(
                                BoxId.parse(request.getBoxId()),
                                ExecutionId.parse(request.getExecutionId()),
                                request.getAfterSeq()),
                FakeEngine::event);
    }

    private static ExecutionEvent event(NodeEvent event) {
        ExecutionEvent.Builder built = ExecutionEvent.newBuilder().setSeq(event.seq());
        return switch (event) {
            case NodeEvent.Started started ->
                built.setStarted(Started.newBuilder().setAtUnixMs(started.at().toEpochMilli()))
                        .build();
            case NodeEvent.Output output ->
                built.setOutput(Output.newBuilder()
                                .setStream(Wire.stream(output.stream()))
                                .setOffset(output.offset())
                                .setData(ByteString.copyFrom(output.data().duplicate())))
                        .build();
            case NodeEvent.Result result ->
                built.setResult(Result.newBuilder()
                                .setMain(result.result().main())
                                .setDataJson(result.result().data().json()))
                        .build();
            case NodeEvent.Gap gap ->
                built.setGap(Gap.newBuilder()
                                .setStream(Wire.stream(gap.stream()))
                                .setOffset(gap.offset())
                                .setBytes(gap.bytes()))
                        .build();
            case NodeEvent.Finished finished ->
                built.setFinished(finish(finished.finish())).build();
        };
    }

    private static Finished finish(NodeEvent.Finish finish) {
        Finished.Builder built = Finished.newBuilder()
                .setReason(ExitReason.valueOf("EXIT_REASON_" + finish.reason().name()))
                .setExitCode(finish.exitCode().orElse(0))
                .setSignal(finish.signal().orElse(0))
                .setStateKept(finish.stateKept())
                .setDetail(finish.detail())
                .setStartedAtUnixMs(finish.startedAt().toEpochMilli())
                .setDurationUs(finish.duration().toNanos() / 1000)
                .setEndedAtUnixMs(finish.endedAt().toEpochMilli())
                .setStdoutBytes(finish.stdoutBytes())
                .setStderrBytes(finish.stderrBytes());
        finish.error()
                .ifPresent(error -> built.setError(ExecutionError.newBuilder()
                        .setName(error.name())
                        .setMessage(error.message())
                        .setTraceback(error.traceback())));
        return built.build();
    }

    @Override
    public void interrupt(InterruptRequest request, StreamObserver<InterruptReply> reply) {
        answer(reply, () -> {
            node.interrupt(BoxId.parse(request.getBoxId()), ExecutionId.parse(request.getExecutionId()));
            return InterruptReply.getDefaultInstance();
        });
    }

    @Override
    public void listExecutions(ListExecutionsRequest request, StreamObserver<ListExecutionsReply> reply) {
        answer(
                reply,
                () -> ListExecutionsReply.newBuilder()
                        .addAllExecutions(node.executions().stream()
                                .map(execution -> ExecutionRecord.newBuilder()
                                        .setExecutionId(execution.id().toString())
                                        .setBoxId(execution.box().toString())
                                        .setContextId(execution.contextId().toString())
                                        .setRunning(execution.running())
                                        .build())
                                .toList())
                        .build());
    }

    @Override
    public void readOutput(ReadOutputRequest request, StreamObserver<OutputPiece> reply) {
        stream(
                reply,
                () -> {
                    OutputReader reader = reader(request);
                    return reader::next;
                },
                () -> {},
                (OutputReader.Piece piece) -> OutputPiece.newBuilder()
                        .setOffset(piece.offset())
                        .setData(ByteString.copyFrom(piece.data().duplicate()))
                        .setGapBytes(piece.gapBytes())
                        .build());
    }

    private OutputReader reader(ReadOutputRequest request) {
        BoxId box = BoxId.parse(request.getBoxId());
        if (request.getExecutionId().startsWith(ProcessId.PREFIX)) {
            OutputChoice choice = switch (request.getStream()) {
                case STREAM_STDERR -> OutputChoice.STDERR;
                case STREAM_COMBINED -> OutputChoice.COMBINED;
                case STREAM_STDOUT, STREAM_UNSPECIFIED, UNRECOGNIZED -> OutputChoice.STDOUT;
            };
            return node.processes()
                    .read(
                            box,
                            ProcessId.parse(request.getExecutionId()),
                            choice,
                            request.getOffset(),
                            request.getFollow());
        }
        return node.readOutput(
                box,
                ExecutionId.parse(request.getExecutionId()),
                request.getStream() == Stream.STREAM_STDERR ? StandardStream.STDERR : StandardStream.STDOUT,
                request.getOffset(),
                request.getFollow());
    }

    @Override
    public void forgetExecutions(ForgetExecutionsRequest request, StreamObserver<ForgetExecutionsReply> reply) {
        answer(reply, () -> {
            Map<Boolean, List<String>> ids = request.getExecutionIdsList().stream()
                    .collect(Collectors.partitioningBy(id -> id.startsWith(ProcessId.PREFIX)));
            node.processes()
                    .forget(
                            ids.getOrDefault(true, List.of()).stream()
                                    .map(ProcessId::parse)
                                    .toList(),
                            request.getKeepSpool());
            node.forgetExecutions(
                    ids.getOrDefault(false, List.of()).stream()
                            .map(ExecutionId::parse)
                            .toList(),
                    request.getKeepSpool());
            return ForgetExecutionsReply.getDefaultInstance();
        });
    }

    @Override
    public void file(FileCall call, StreamObserver<FileReply> reply) {
        answer(
                reply,
                () -> FakeEngineFiles.reply(node.file(
                        BoxId.parse(call.getBoxId()),
                        call.getRequest().getUser(),
                        FakeEngineFiles.operation(call.getRequest()))));
    }

    /** Either the file that is read, or a piece of it. */
    private record Read(Optional<FileStat> file, Optional<ByteBuffer> piece) {}

    @Override
    public void readFile(ReadFileCall call, StreamObserver<FilePiece> reply) {
        stream(
                reply,
                () -> {
                    FileReader reader = node.readFile(
                            BoxId.parse(call.getBoxId()),
                            call.getRequest().getUser(),
                            FakeEngineFiles.read(call.getRequest()));
                    Iterator<FileStat> first = List.of(reader.file()).iterator();
                    return (Streaming<Read>) () -> first.hasNext()
                            ? Optional.of(new Read(Optional.of(first.next()), Optional.empty()))
                            : reader.next().map(piece -> new Read(Optional.empty(), Optional.of(piece)));
                },
                () -> {},
                (Read read) -> {
                    FilePiece.Builder built = FilePiece.newBuilder();
                    read.file().ifPresent(file -> built.setFile(FakeEngineFiles.info(file)));
                    read.piece().ifPresent(piece -> built.setData(ByteString.copyFrom(piece)));
                    return built.build();
                });
    }

    @Override
    public StreamObserver<WriteFileCall> writeFile(StreamObserver<WriteFileReply> reply) {
        return new StreamObserver<>() {
            private @Nullable FileWriter writer;

            @Override
            public void onNext(WriteFileCall call) {
                try {
                    take(call);
                } catch (AtollException e) {
                    reply.onError(exception(e));
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }

            private void take(WriteFileCall call) throws InterruptedException {
                switch (call.getRequest().getMessageCase()) {
                    case OPEN -> {
                        WriteFileOpen open = call.getRequest().getOpen();
                        writer = node.writeFile(
                                BoxId.parse(call.getBoxId()), open.getUser(), FakeEngineFiles.write(open));
                    }
                    case DATA -> {
                        if (writer != null) {
                            writer.write(call.getRequest().getData().asReadOnlyByteBuffer());
                        }
                    }
                    case COMMIT -> {
                        if (writer != null) {
                            reply.onNext(FakeEngineFiles.written(writer.commit()));
                            reply.onCompleted();
                        }
                    }
                    case MESSAGE_NOT_SET -> throw new IllegalArgumentException("an empty message");
                }
            }

            @Override
            public void onError(Throwable t) {
                close();
            }

            @Override
            public void onCompleted() {
                close();
            }

            private void close() {
                if (writer != null) {
                    writer.close();
                }
            }
        };
    }

    @Override
    public void watchFiles(WatchFilesCall call, StreamObserver<FileEvent> reply) {
        NodeStream<atoll.core.file.FileEvent> watch;
        try {
            watch = node.watchFiles(
                    BoxId.parse(call.getBoxId()),
                    call.getRequest().getUser(),
                    call.getRequest().getPath(),
                    call.getRequest().getRecursive());
        } catch (AtollException e) {
            reply.onError(exception(e));
            return;
        }
        stream(reply, () -> watch::next, watch::close, FakeEngineFiles::event);
        ((ServerCallStreamObserver<FileEvent>) reply).setOnCancelHandler(watch::close);
    }

    @Override
    public void listPorts(BoxRequest request, StreamObserver<ListPortsReply> reply) {
        answer(
                reply,
                () -> ListPortsReply.newBuilder()
                        .addAllPorts(node.ports(BoxId.parse(request.getBoxId())).stream()
                                .map(port -> ListeningPort.newBuilder()
                                        .setPort(port.port())
                                        .setAddress(port.address())
                                        .setPid(port.pid())
                                        .setCommand(port.command())
                                        .build())
                                .toList())
                        .build());
    }

    @Override
    public StreamObserver<TunnelCall> tunnel(StreamObserver<TunnelMessage> reply) {
        return new StreamObserver<>() {
            private @Nullable Tunnel tunnel;

            @Override
            public void onNext(TunnelCall call) {
                try {
                    take(call);
                } catch (AtollException e) {
                    reply.onError(exception(e));
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }

            private void take(TunnelCall call) throws InterruptedException {
                switch (call.getMessage().getMessageCase()) {
                    case OPEN -> {
                        Tunnel opened = node.tunnel(
                                BoxId.parse(call.getBoxId()),
                                call.getMessage().getOpen().getPort());
                        tunnel = opened;
                        reply.onNext(TunnelMessage.newBuilder()
                                .setOpened(TunnelOpened.getDefaultInstance())
                                .build());
                        Thread.ofVirtual().start(() -> back(opened));
                    }
                    case DATA -> {
                        if (tunnel != null) {
                            tunnel.send(call.getMessage().getData().asReadOnlyByteBuffer());
                        }
                    }
                    case END -> {
                        if (tunnel != null) {
                            tunnel.end();
                        }
                    }
                    case OPENED, MESSAGE_NOT_SET -> throw new IllegalArgumentException("not for an engine");
                }
            }

            private void back(Tunnel from) {
                try (from) {
                    Optional<ByteBuffer> piece = from.receive();
                    while (piece.isPresent()) {
                        reply.onNext(TunnelMessage.newBuilder()
                                .setData(ByteString.copyFrom(piece.get()))
                                .build());
                        piece = from.receive();
                    }
                    reply.onNext(TunnelMessage.newBuilder()
                            .setEnd(TunnelEnd.getDefaultInstance())
                            .build());
                    reply.onCompleted();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }

            @Override
            public void onError(Throwable t) {
                onCompleted();
            }

            @Override
            public void onCompleted() {
                if (tunnel != null) {
                    tunnel.close();
                }
            }
        };
    }

    @Override
    public void prepareBox(PrepareBoxRequest request, StreamObserver<Box> reply) {
        answer(reply, () -> snapshots.prepareBox(request));
    }

    @Override
    public void restoreBox(RestoreBoxRequest request, StreamObserver<Box> reply) {
        answer(reply, () -> snapshots.restoreBox(request));
    }

    @Override
    public void pauseBox(PauseBoxRequest request, StreamObserver<Box> reply) {
        answer(reply, () -> snapshots.pauseBox(request));
    }

    @Override
    public void resumeBox(ResumeBoxRequest request, StreamObserver<Box> reply) {
        answer(reply, () -> snapshots.resumeBox(request));
    }

    @Override
    public void rollbackBox(RollbackBoxRequest request, StreamObserver<Box> reply) {
        answer(reply, () -> snapshots.rollbackBox(request));
    }

    @Override
    public void setDeadline(SetDeadlineRequest request, StreamObserver<Box> reply) {
        answer(reply, () -> snapshots.setDeadline(request));
    }

    @Override
    public void createSnapshot(CreateSnapshotRequest request, StreamObserver<Snapshot> reply) {
        answer(reply, () -> snapshots.createSnapshot(request));
    }

    @Override
    public void listSnapshots(ListSnapshotsRequest request, StreamObserver<ListSnapshotsReply> reply) {
        answer(reply, () -> snapshots.listSnapshots());
    }

    @Override
    public void deleteSnapshot(SnapshotRequest request, StreamObserver<DeleteSnapshotReply> reply) {
        answer(reply, () -> snapshots.deleteSnapshot(request));
    }

    @Override
    public void exportSnapshot(SnapshotRequest request, StreamObserver<FilePart> reply) {
        InputStream file;
        try {
            file = snapshots.export(request);
        } catch (AtollException e) {
            reply.onError(exception(e));
            return;
        }
        stream(
                reply,
                () -> () -> FakeEngineSnapshots.part(file),
                () -> FakeEngineSnapshots.close(file),
                data -> FilePart.newBuilder().setData(data).build());
    }

    /** Takes a message when the one before was used up, as an engine does that writes to a disk. */
    @Override
    public StreamObserver<ImportSnapshotRequest> importSnapshot(StreamObserver<Snapshot> reply) {
        ServerCallStreamObserver<Snapshot> call = (ServerCallStreamObserver<Snapshot>) reply;
        call.disableAutoRequest();
        var parts = new FakeEngineSnapshots.Parts(() -> call.request(1));
        call.setOnCancelHandler(parts::cancelled);
        call.request(1);
        Thread taker = Thread.ofVirtual().unstarted(() -> {
            try {
                Snapshot imported = snapshots.importFile(parts);
                reply.onNext(imported);
                reply.onCompleted();
            } catch (AtollException e) {
                if (!call.isCancelled()) {
                    reply.onError(exception(e));
                }
            } catch (IOException e) {
                if (!call.isCancelled()) {
                    reply.onError(Status.INTERNAL.withDescription(e.toString()).asRuntimeException());
                }
            }
        });
        taker.start();
        return parts;
    }

    @Override
    public StreamObserver<MakeImageRequest> makeImage(StreamObserver<MakeImageEvent> reply) {
        return FakeEngineImages.make(node, (ServerCallStreamObserver<MakeImageEvent>) reply);
    }

    @Override
    public void deleteImage(ImageRequest request, StreamObserver<DeleteImageReply> reply) {
        answer(
                reply,
                () -> DeleteImageReply.newBuilder()
                        .setFreedBytes(node.deleteImage(request.getDigest()))
                        .build());
    }

    @Override
    public void pruneImages(PruneImagesRequest request, StreamObserver<PruneImagesReply> reply) {
        answer(reply, () -> {
            var pruned = node.pruneImages(
                    request.getKeepDigestsList(), Instant.ofEpochMilli(request.getBuiltBeforeUnixMs()));
            return PruneImagesReply.newBuilder()
                    .addAllRemovedDigests(pruned.digests())
                    .setFreedBytes(pruned.freedBytes())
                    .build();
        });
    }
}
