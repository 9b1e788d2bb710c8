package atoll.node;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ProcessId;
import atoll.core.SandboxId;
import atoll.core.node.HeldProcess;
import atoll.core.node.NodeProcess;
import atoll.core.node.ProcessSpec;
import atoll.core.process.GuestProcess;
import atoll.core.process.OutputChoice;
import atoll.core.process.SignalTarget;
import atoll.core.process.TerminalSize;
import atoll.proto.exec.v1.Process;
import atoll.proto.exec.v1.Stream;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;

/** Core's processes as the protocol's messages, and back. */
final class ProcessWire {
    private ProcessWire() {}

    static atoll.proto.exec.v1.ProcessSpec spec(ProcessSpec spec) {
        atoll.proto.exec.v1.ProcessSpec.Builder built = atoll.proto.exec.v1.ProcessSpec.newBuilder()
                .setProcessId(spec.id().toString())
                .addAllArgv(spec.argv())
                .setCwd(spec.cwd())
                .putAllEnv(spec.env())
                .setUser(spec.user())
                .setStdin(spec.stdin())
                .putAllLabels(spec.labels());
        spec.timeout().ifPresent(limit -> built.setTimeoutMs(limit.toMillis()));
        spec.terminal().ifPresent(size -> built.setTerminal(size(size)));
        return built.build();
    }

    static ProcessSpec spec(atoll.proto.exec.v1.ProcessSpec spec) {
        return new ProcessSpec(
                ProcessId.parse(spec.getProcessId()),
                spec.getArgvList(),
                spec.getCwd(),
                spec.getEnvMap(),
                spec.getUser(),
                spec.getStdin(),
                spec.getTimeoutMs() == 0 ? Optional.empty() : Optional.of(Duration.ofMillis(spec.getTimeoutMs())),
                spec.hasTerminal() ? Optional.of(size(spec.getTerminal())) : Optional.empty(),
                spec.getLabelsMap());
    }

    static atoll.proto.exec.v1.TerminalSize size(TerminalSize size) {
        return atoll.proto.exec.v1.TerminalSize.newBuilder()
                .setColumns(size.columns())
                .setRows(size.rows())
                .build();
    }

    /** What comes from inside a sandbox may be anything. */
    private static TerminalSize size(atoll.proto.exec.v1.TerminalSize size) {
        return new TerminalSize(Math.clamp(size.getColumns(), 1, 10_000), Math.clamp(size.getRows(), 1, 10_000));
    }

    static NodeProcess process(Process process) {
        return new NodeProcess(
                spec(process.getSpec()),
                process.getPid(),
                Instant.ofEpochMilli(process.getStartedAtUnixMs()),
                process.hasFinished() ? Optional.of(Wire.finish(process.getFinished())) : Optional.empty(),
                process.getStdinOffset(),
                process.getStdinClosed(),
                process.getStdoutBytes(),
                process.getStderrBytes());
    }

    static HeldProcess held(atoll.proto.engine.v1.NodeProcess held) {
        return new HeldProcess(
                BoxId.parse(held.getBoxId()),
                held.getSandboxId().isEmpty() ? Optional.empty() : Optional.of(SandboxId.parse(held.getSandboxId())),
                process(held.getProcess()));
    }

    static Stream stream(OutputChoice choice) {
        return switch (choice) {
            case STDOUT -> Stream.STREAM_STDOUT;
            case STDERR -> Stream.STREAM_STDERR;
            case COMBINED -> Stream.STREAM_COMBINED;
        };
    }

    static atoll.proto.exec.v1.SignalTarget target(SignalTarget target) {
        return switch (target) {
            case PROCESS -> atoll.proto.exec.v1.SignalTarget.SIGNAL_TARGET_PROCESS;
            case GROUP -> atoll.proto.exec.v1.SignalTarget.SIGNAL_TARGET_GROUP;
            case TREE -> atoll.proto.exec.v1.SignalTarget.SIGNAL_TARGET_TREE;
        };
    }

    static GuestProcess guest(atoll.proto.exec.v1.GuestProcess guest) {
        return new GuestProcess(
                guest.getPid(),
                guest.getParentPid(),
                guest.getUid(),
                guest.getUser(),
                guest.getCommand(),
                guest.getArgvList(),
                guest.getState(),
                Duration.ofMillis(guest.getCpuMs()),
                guest.getMemoryBytes(),
                Instant.ofEpochMilli(guest.getStartedAtUnixMs()),
                guest.getProcessId().isEmpty() ? Optional.empty() : Optional.of(ProcessId.parse(guest.getProcessId())),
                guest.getContextId().isEmpty() ? Optional.empty() : Optional.of(ContextId.parse(guest.getContextId())));
    }
}
