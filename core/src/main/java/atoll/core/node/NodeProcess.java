package atoll.core.node;

import atoll.core.ProcessId;
import java.time.Instant;
import java.util.Optional;

/**
 * A process as its node sees it.
 *
 * @param pid 0 if it never started
 * @param finish set when it has ended
 */
public record NodeProcess(
        ProcessSpec spec,
        int pid,
        Instant startedAt,
        Optional<NodeEvent.Finish> finish,
        long stdinOffset,
        boolean stdinClosed,
        long stdoutBytes,
        long stderrBytes) {
    public ProcessId id() {
        return spec.id();
    }
}
