package atoll.core.process;

import atoll.core.ContextId;
import atoll.core.ProcessId;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;

/**
 * A process inside a sandbox, as {@code ps} shows it.
 *
 * @param state as the kernel names it
 * @param processId of the process of ours that it descends from
 * @param contextId of the context whose interpreter it descends from
 */
public record GuestProcess(
        int pid,
        int parentPid,
        int uid,
        String user,
        String command,
        List<String> argv,
        String state,
        Duration cpu,
        long memoryBytes,
        Instant startedAt,
        Optional<ProcessId> processId,
        Optional<ContextId> contextId) {
    public GuestProcess {
        argv = List.copyOf(argv);
    }
}
