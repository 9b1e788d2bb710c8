package atoll.core.node;

import atoll.core.ProcessId;
import atoll.core.process.TerminalSize;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A program to start. Labels mean nothing to the node. */
public record ProcessSpec(
        ProcessId id,
        List<String> argv,
        String cwd,
        Map<String, String> env,
        String user,
        boolean stdin,
        Optional<Duration> timeout,
        Optional<TerminalSize> terminal,
        Map<String, String> labels) {
    public ProcessSpec {
        argv = List.copyOf(argv);
        env = Map.copyOf(env);
        labels = Map.copyOf(labels);
    }
}
