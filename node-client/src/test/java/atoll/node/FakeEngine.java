package atoll.node;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.SandboxId;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.node.BoxAssignment;
import atoll.core.node.BoxState;
import atoll.core.node.ContextSpec;
import atoll.core.node.ExecutionSpec;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeInfo;
import atoll.core.node.NodeStream;
import atoll.core.template.Limits;
import atoll.core.testing.FakeNode;
import atoll.proto.engine.v1.AssignBoxRequest;
import atoll.proto.engine.v1.AttachRequest;
import atoll.proto.engine.v1.Box;
import atoll.proto.engine.v1.BoxEndReason;
import atoll.proto.engine.v1.BoxRequest;
import atoll.proto.engine.v1.BoxSpec;
import atoll.proto.engine.v1.ClaimReply;
import atoll.proto.engine.v1.ClaimRequest;
import atoll.proto.engine.v1.CreateBoxRequest;
import atoll.proto.engine.v1.DeleteBoxReply;
import atoll.proto.engine.v1.EngineGrpc;
import atoll.proto.engine.v1.EngineInfo;
import atoll.proto.engine.v1.ExecuteRequest;
import atoll.proto.engine.v1.ExecutionRecord;
import atoll.proto.engine.v1.ForgetExecutionsReply;
import atoll.proto.engine.v1.ForgetExecutionsRequest;
import atoll.proto.engine.v1.GetInfoRequest;
import atoll.proto.engine.v1.Image;
import atoll.proto.engine.v1.InterruptReply;
import atoll.proto.engine.v1.InterruptRequest;
import atoll.proto.engine.v1.ListBoxesReply;
import atoll.proto.engine.v1.ListBoxesRequest;
import atoll.proto.engine.v1.ListExecutionsReply;
import atoll.proto.engine.v1.ListExecutionsRequest;
import atoll.proto.engine.v1.ListImagesReply;
import atoll.proto.engine.v1.ListImagesRequest;
import atoll.proto.engine.v1.OpenContextRequest;
import atoll.proto.engine.v1.OutputPiece;
import atoll.proto.engine.v1.ReadOutputRequest;
import atoll.proto.engine.v1.UpdateLimitsRequest;
import atoll.proto.engine.v1.WatchBoxesRequest;
import atoll.proto.exec.v1.Context;
import atoll.proto.exec.v1.ExecutionError;
import atoll.proto.exec.v1.ExecutionEvent;
import atoll.proto.exec.v1.ExitReason;
import atoll.proto.exec.v1.Finished;
import atoll.proto.exec.v1.Gap;
import atoll.proto.exec.v1.Output;
import atoll.proto.exec.v1.Result;
import atoll.proto.exec.v1.Started;
import atoll.proto.exec.v1.Stream;
import com.google.protobuf.ByteString;
import io.grpc.Status;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import java.util.function.Supplier;

/** A {@link FakeNode} behind the engine's protocol: the other half of {@code Wire}, written once. */
final class FakeEngine extends EngineGrpc.EngineImplBase {
    private final FakeNode node;

    FakeEngine(FakeNode node) {
        this.node = node;
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
            reply.onError(status(e).asRuntimeException());
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
                    call.onError(status(e).asRuntimeException());
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
        Status status = switch (e.code()) {
            case NOT_FOUND -> Status.NOT_FOUND;
            case CONFLICT -> Status.FAILED_PRECONDITION;
            case NODE_UNAVAILABLE -> Status.UNAVAILABLE;
            case NODE_FULL, DISK_FULL -> Status.RESOURCE_EXHAUSTED;
            default -> Status.INTERNAL;
        };
        return status.withDescription(e.message());
    }

    @Override
    public void getInfo(GetInfoRequest request, StreamObserver<EngineInfo> reply) {
        answer(reply, () -> {
            NodeInfo info = node.info();
            return EngineInfo.newBuilder()
                    .setInstance(info.instance())
                    .setMemoryTotalBytes(info.memoryTotalBytes())
                    .setClaimedEpoch(info.claimedEpoch())
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
                        .addAllImages(
                                node.images().stream().map(FakeEngine::image).toList())
                        .build());
    }

    private static Image image(atoll.core.node.Image image) {
        StringBuilder packages = new StringBuilder("\"built\":[3]");
        image.packages()
                .forEach((kind, versions) -> versions.forEach((name, version) ->
                        packages.append(",\"%s\":{\"odd\":{\"x\":1},\"%s\":\"%s\"}".formatted(kind, name, version))));
        return Image.newBuilder()
                .setName(image.name())
                .setDigest(image.digest())
                .addAllLanguages(image.languages().stream().map(Language::text).toList())
                .addLanguages("a-language-of-the-future")
                .setMetadataJson("{\"user\":{\"packages\":[1,2]},\"packages\":{" + packages + "},\"workdir\":\"/\"}")
                .build();
    }

    private static ContextSpec context(atoll.proto.exec.v1.ContextSpec spec) {
        return new ContextSpec(
                ContextId.parse(spec.getContextId()),
                Language.parse(spec.getLanguage()),
                spec.getCwd(),
                spec.getEnvMap());
    }

    private static Limits limits(atoll.proto.exec.v1.Limits limits) {
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
            BoxSpec spec = request.getSpec();
            return box(node.createBox(
                    BoxId.parse(request.getBoxId()),
                    new atoll.core.node.BoxSpec(
                            spec.getImageDigest(),
                            limits(spec.getLimits()),
                            spec.getWarmContextsList().stream()
                                    .map(FakeEngine::context)
                                    .toList(),
                            spec.getLabelsMap())));
        });
    }

    private static Box box(atoll.core.node.Box box) {
        Box.Builder built = Box.newBuilder()
                .setBoxId(box.id().toString())
                .setState(state(box.state()))
                .setSandboxId(box.sandboxId().map(SandboxId::toString).orElse(""))
                .setLimits(Wire.limits(box.limits().orElse(Limits.DEFAULT)))
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
                                    case CRASHED -> BoxEndReason.BOX_END_REASON_EXITED;
                                    case START_FAILED -> BoxEndReason.BOX_END_REASON_START_FAILED;
                                    case LOST -> BoxEndReason.BOX_END_REASON_LOST;
                                }));
        return built.build();
    }

    private static atoll.proto.engine.v1.BoxState state(BoxState state) {
        return switch (state) {
            case CREATING -> atoll.proto.engine.v1.BoxState.BOX_STATE_CREATING;
            case READY -> atoll.proto.engine.v1.BoxState.BOX_STATE_READY;
            case RECONNECTING -> atoll.proto.engine.v1.BoxState.BOX_STATE_RECONNECTING;
            case ENDED -> atoll.proto.engine.v1.BoxState.BOX_STATE_ENDED;
            case DELETED -> atoll.proto.engine.v1.BoxState.BOX_STATE_DELETED;
        };
    }

    @Override
    public void assignBox(AssignBoxRequest request, StreamObserver<Box> reply) {
        answer(
                reply,
                () -> box(node.assignBox(
                        BoxId.parse(request.getBoxId()),
                        new BoxAssignment(
                                SandboxId.parse(request.getSandboxId()),
                                request.getHostname(),
                                request.getEnvMap(),
                                limits(request.getLimits())))));
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
        answer(reply, () -> {
            node.openContext(BoxId.parse(request.getBoxId()), context(request.getSpec()));
            return Context.getDefaultInstance();
        });
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
                () -> node.attach(
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
                .setStateKept(finish.stateKept())
                .setDetail(finish.detail())
                .setStartedAtUnixMs(finish.startedAt().toEpochMilli())
                .setDurationUs(finish.duration().toNanos() / 1000)
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
                    OutputReader reader = node.readOutput(
                            BoxId.parse(request.getBoxId()),
                            ExecutionId.parse(request.getExecutionId()),
                            request.getStream() == Stream.STREAM_STDERR ? StandardStream.STDERR : StandardStream.STDOUT,
                            request.getOffset(),
                            request.getFollow());
                    return reader::next;
                },
                () -> {},
                (OutputReader.Piece piece) -> OutputPiece.newBuilder()
                        .setOffset(piece.offset())
                        .setData(ByteString.copyFrom(piece.data().duplicate()))
                        .build());
    }

    @Override
    public void forgetExecutions(ForgetExecutionsRequest request, StreamObserver<ForgetExecutionsReply> reply) {
        answer(reply, () -> {
            List<ExecutionId> ids = request.getExecutionIdsList().stream()
                    .map(ExecutionId::parse)
                    .toList();
            node.forgetExecutions(ids, request.getKeepSpool());
            return ForgetExecutionsReply.getDefaultInstance();
        });
    }
}
