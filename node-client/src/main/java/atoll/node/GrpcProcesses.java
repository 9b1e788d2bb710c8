package atoll.node;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.ProcessId;
import atoll.core.execution.OutputReader;
import atoll.core.node.HeldProcess;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeProcess;
import atoll.core.node.NodeProcesses;
import atoll.core.node.NodeStream;
import atoll.core.node.ProcessSpec;
import atoll.core.process.GuestProcess;
import atoll.core.process.InputPosition;
import atoll.core.process.OutputChoice;
import atoll.core.process.SignalTarget;
import atoll.core.process.TerminalSize;
import atoll.proto.engine.v1.AttachRequest;
import atoll.proto.engine.v1.BoxRequest;
import atoll.proto.engine.v1.EngineGrpc;
import atoll.proto.engine.v1.ForgetExecutionsReply;
import atoll.proto.engine.v1.ForgetExecutionsRequest;
import atoll.proto.engine.v1.ListProcessesRequest;
import atoll.proto.engine.v1.ProcessRequest;
import atoll.proto.engine.v1.ReadOutputRequest;
import atoll.proto.engine.v1.ResizeTerminalReply;
import atoll.proto.engine.v1.ResizeTerminalRequest;
import atoll.proto.engine.v1.SignalProcessReply;
import atoll.proto.engine.v1.SignalProcessRequest;
import atoll.proto.engine.v1.StartProcessRequest;
import atoll.proto.engine.v1.WriteInputRequest;
import atoll.proto.exec.v1.ResizeRequest;
import atoll.proto.exec.v1.SignalRequest;
import atoll.proto.exec.v1.WriteInputReply;
import com.google.protobuf.ByteString;
import io.grpc.Status;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;

/** The part of {@link GrpcNode} that is about processes. */
final class GrpcProcesses implements NodeProcesses {
    /** The agent answers these at once, but the sandbox may have little CPU to do it with. */
    private static final Duration USUAL = Duration.ofSeconds(30);

    private static final Duration SLOW = Duration.ofMinutes(2);

    private final Calls calls;

    GrpcProcesses(Calls calls) {
        this.calls = calls;
    }

    @Override
    public NodeProcess start(BoxId box, ProcessSpec spec) {
        StartProcessRequest request = StartProcessRequest.newBuilder()
                .setBoxId(box.toString())
                .setSpec(ProcessWire.spec(spec))
                .build();
        return ProcessWire.process(calls.unary(
                EngineGrpc.getStartProcessMethod(),
                request,
                "start of " + spec.argv().getFirst(),
                SLOW,
                GrpcProcesses::notStarted));
    }

    private static AtollException notStarted(Status status, String what) {
        if (status.getCode() == Status.Code.NOT_FOUND) {
            String said = status.getDescription() == null ? "no such program" : status.getDescription();
            return new AtollException(
                    ErrorCode.PROGRAM_NOT_FOUND,
                    what + ": " + said,
                    "The program, or the interpreter that its first line names, is not in the sandbox.",
                    "Correct the name, or install it in the sandbox or its template.",
                    status.getCause());
        }
        return failure(status, what);
    }

    /** Unlike elsewhere, a permission is one that the system inside the sandbox denies. */
    private static AtollException failure(Status status, String what) {
        if (status.getCode() == Status.Code.PERMISSION_DENIED) {
            String said = status.getDescription() == null ? "permission denied" : status.getDescription();
            return new AtollException(
                    ErrorCode.PERMISSION_DENIED,
                    what + ": " + said,
                    "The user that it was to be done as may not.",
                    "Name another user, e.g. root, or change the permissions inside the sandbox.",
                    status.getCause());
        }
        return Statuses.failure(status, what);
    }

    @Override
    public NodeProcess get(BoxId box, ProcessId id) {
        return ProcessWire.process(
                calls.unary(EngineGrpc.getGetProcessMethod(), request(box, id), "process " + id, USUAL));
    }

    private static ProcessRequest request(BoxId box, ProcessId id) {
        return ProcessRequest.newBuilder()
                .setBoxId(box.toString())
                .setProcessId(id.toString())
                .build();
    }

    @Override
    public List<HeldProcess> list(Optional<BoxId> box) {
        ListProcessesRequest request = ListProcessesRequest.newBuilder()
                .setBoxId(box.map(BoxId::toString).orElse(""))
                .build();
        return calls.unary(EngineGrpc.getListProcessesMethod(), request, "processes", USUAL).getProcessesList().stream()
                .map(ProcessWire::held)
                .toList();
    }

    @Override
    public CompletableFuture<NodeProcess> ended(BoxId box, ProcessId id) {
        return calls.later(EngineGrpc.getWaitProcessMethod(), request(box, id), "end of " + id)
                .thenApply(ProcessWire::process);
    }

    @Override
    public NodeStream<NodeEvent> attach(BoxId box, ProcessId id, long afterSeq) {
        AttachRequest request = AttachRequest.newBuilder()
                .setBoxId(box.toString())
                .setExecutionId(id.toString())
                .setAfterSeq(afterSeq)
                .build();
        return calls.stream(EngineGrpc.getAttachMethod(), request, "process " + id, Wire::event);
    }

    @Override
    public OutputReader read(BoxId box, ProcessId id, OutputChoice choice, long offset, boolean follow) {
        ReadOutputRequest request = ReadOutputRequest.newBuilder()
                .setBoxId(box.toString())
                .setExecutionId(id.toString())
                .setStream(ProcessWire.stream(choice))
                .setOffset(offset)
                .setFollow(follow)
                .build();
        return calls.output(EngineGrpc.getReadOutputMethod(), request, "output of " + id);
    }

    @Override
    public InputPosition write(
            BoxId box, ProcessId id, OptionalLong offset, ByteBuffer data, boolean close, Duration limit) {
        atoll.proto.exec.v1.WriteInputRequest.Builder input = atoll.proto.exec.v1.WriteInputRequest.newBuilder()
                .setProcessId(id.toString())
                .setData(ByteString.copyFrom(data.duplicate()))
                .setClose(close);
        offset.ifPresent(input::setOffset);
        WriteInputRequest request = WriteInputRequest.newBuilder()
                .setBoxId(box.toString())
                .setInput(input)
                .build();
        WriteInputReply reply =
                calls.unary(EngineGrpc.getWriteInputMethod(), request, "input of " + id, limit, GrpcProcesses::failure);
        return new InputPosition(reply.getOffset(), reply.getClosed());
    }

    @Override
    public void signal(BoxId box, ProcessId id, int signal, SignalTarget target) {
        signal(
                box,
                SignalRequest.newBuilder()
                        .setProcessId(id.toString())
                        .setSignal(signal)
                        .setTarget(ProcessWire.target(target))
                        .build(),
                "signal to " + id);
    }

    private void signal(BoxId box, SignalRequest signal, String what) {
        SignalProcessReply done = calls.unary(
                EngineGrpc.getSignalProcessMethod(),
                SignalProcessRequest.newBuilder()
                        .setBoxId(box.toString())
                        .setSignal(signal)
                        .build(),
                what,
                USUAL,
                GrpcProcesses::failure);
        assert done != null;
    }

    @Override
    public void resize(BoxId box, ProcessId id, TerminalSize size) {
        ResizeTerminalReply done = calls.unary(
                EngineGrpc.getResizeTerminalMethod(),
                ResizeTerminalRequest.newBuilder()
                        .setBoxId(box.toString())
                        .setResize(ResizeRequest.newBuilder()
                                .setProcessId(id.toString())
                                .setSize(ProcessWire.size(size)))
                        .build(),
                "new size of " + id,
                USUAL);
        assert done != null;
    }

    @Override
    public List<GuestProcess> guests(BoxId box) {
        BoxRequest request = BoxRequest.newBuilder().setBoxId(box.toString()).build();
        return calls
                .unary(EngineGrpc.getListGuestProcessesMethod(), request, "processes inside", USUAL)
                .getProcessesList()
                .stream()
                .map(ProcessWire::guest)
                .toList();
    }

    @Override
    public void signalGuest(BoxId box, int pid, int signal) {
        signal(box, SignalRequest.newBuilder().setPid(pid).setSignal(signal).build(), "signal to process " + pid);
    }

    @Override
    public void forget(List<ProcessId> ids, boolean keepSpool) {
        ForgetExecutionsReply done = calls.unary(
                EngineGrpc.getForgetExecutionsMethod(),
                ForgetExecutionsRequest.newBuilder()
                        .addAllExecutionIds(
                                ids.stream().map(ProcessId::toString).toList())
                        .setKeepSpool(keepSpool)
                        .build(),
                "processes that are on record",
                USUAL);
        assert done != null;
    }
}
