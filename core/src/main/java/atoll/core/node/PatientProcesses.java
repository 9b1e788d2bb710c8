package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.ProcessId;
import atoll.core.execution.OutputReader;
import atoll.core.process.GuestProcess;
import atoll.core.process.InputPosition;
import atoll.core.process.OutputChoice;
import atoll.core.process.SignalTarget;
import atoll.core.process.TerminalSize;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;

/** The part of {@link PatientNode} that is about processes. */
final class PatientProcesses implements NodeProcesses {
    private final PatientNode patient;
    private final NodeProcesses processes;

    PatientProcesses(PatientNode patient, NodeProcesses processes) {
        this.patient = patient;
        this.processes = processes;
    }

    @Override
    public NodeProcess start(BoxId box, ProcessSpec spec) {
        return patient.inside(box, () -> processes.start(box, spec));
    }

    @Override
    public NodeProcess get(BoxId box, ProcessId id) {
        return patient.inside(box, () -> processes.get(box, id));
    }

    @Override
    public List<HeldProcess> list(Optional<BoxId> box) {
        return patient.patiently(() -> processes.list(box));
    }

    @Override
    public CompletableFuture<NodeProcess> ended(BoxId box, ProcessId id) {
        patient.requireOwned();
        return processes.ended(box, id);
    }

    @Override
    public NodeStream<NodeEvent> attach(BoxId box, ProcessId id, long afterSeq) {
        patient.requireOwned();
        return processes.attach(box, id, afterSeq);
    }

    @Override
    public OutputReader read(BoxId box, ProcessId id, OutputChoice choice, long offset, boolean follow) {
        patient.requireOwned();
        return processes.read(box, id, choice, offset, follow);
    }

    /** Tried again only with an offset: without one it could be written twice. */
    @Override
    public InputPosition write(
            BoxId box, ProcessId id, OptionalLong offset, ByteBuffer data, boolean close, Duration limit) {
        if (offset.isEmpty()) {
            return patient.once(box, () -> processes.write(box, id, offset, data, close, limit));
        }
        return patient.inside(box, () -> processes.write(box, id, offset, data.duplicate(), close, limit));
    }

    @Override
    public void signal(BoxId box, ProcessId id, int signal, SignalTarget target) {
        patient.inside(box, () -> processes.signal(box, id, signal, target));
    }

    @Override
    public void resize(BoxId box, ProcessId id, TerminalSize size) {
        patient.inside(box, () -> processes.resize(box, id, size));
    }

    @Override
    public List<GuestProcess> guests(BoxId box) {
        return patient.inside(box, () -> processes.guests(box));
    }

    @Override
    public void signalGuest(BoxId box, int pid, int signal) {
        patient.inside(box, () -> processes.signalGuest(box, pid, signal));
    }

    @Override
    public void forget(List<ProcessId> ids, boolean keepSpool) {
        patient.patiently(() -> processes.forget(ids, keepSpool));
    }
}
