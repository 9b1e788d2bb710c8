package atoll.core.process;

import atoll.core.ProcessId;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What is on record of a process, also long after its sandbox is gone. The environment that it was given is not: it may hold secrets.
 *
 * @param argv what was started
 * @param command the text for the shell, where it was that
 * @param main whether it is its sandbox's main process
 * @param pid inside the sandbox; 0 until it has started
 * @param createdAt when it was asked for; started a moment later
 * @param progress as of the last time that anybody looked; final once it has ended
 * @param end empty while it runs
 */
public record ProcessRecord(
        ProcessId id,
        ProjectId project,
        SandboxId sandboxId,
        List<String> argv,
        Optional<String> command,
        String cwd,
        String user,
        boolean stdin,
        Optional<Duration> timeout,
        Optional<TerminalSize> terminal,
        Map<String, String> labels,
        boolean main,
        int pid,
        Instant createdAt,
        Optional<Instant> startedAt,
        Progress progress,
        Optional<ProcessEnd> end) {
    public ProcessRecord {
        argv = List.copyOf(argv);
        labels = Map.copyOf(labels);
    }

    /** How much it has printed and been given, in bytes. */
    public record Progress(long stdoutBytes, long stderrBytes, long stdinOffset, boolean stdinClosed) {
        public static final Progress NONE = new Progress(0, 0, 0, false);
    }

    public boolean running() {
        return end.isEmpty();
    }

    ProcessRecord with(List<String> newArgv) {
        return new ProcessRecord(
                id, project, sandboxId, newArgv, command, cwd, user, stdin, timeout, terminal, labels, main, pid,
                createdAt, startedAt, progress, end);
    }

    ProcessRecord with(int newPid, Optional<Instant> newStartedAt, Progress newProgress, Optional<ProcessEnd> newEnd) {
        return new ProcessRecord(
                id,
                project,
                sandboxId,
                argv,
                command,
                cwd,
                user,
                stdin,
                timeout,
                terminal,
                labels,
                main,
                newPid,
                createdAt,
                newStartedAt,
                newProgress,
                newEnd);
    }

    ProcessRecord with(TerminalSize size) {
        return new ProcessRecord(
                id,
                project,
                sandboxId,
                argv,
                command,
                cwd,
                user,
                stdin,
                timeout,
                Optional.of(size),
                labels,
                main,
                pid,
                createdAt,
                startedAt,
                progress,
                end);
    }
}
