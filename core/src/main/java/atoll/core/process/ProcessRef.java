package atoll.core.process;

import atoll.core.AtollException;
import atoll.core.ProcessId;
import atoll.core.SandboxId;

/** How a call names a process. */
public sealed interface ProcessRef {
    /** Wherever it is. */
    record ById(ProcessId id) implements ProcessRef {}

    /** Only in this sandbox. */
    record InSandbox(SandboxId sandbox, ProcessId id) implements ProcessRef {}

    /** By its number inside; only while it runs, since numbers are given out again. */
    record ByPid(SandboxId sandbox, int pid) implements ProcessRef {}

    static ProcessRef of(ProcessId id) {
        return new ById(id);
    }

    static ProcessRef of(SandboxId sandbox, ProcessId id) {
        return new InSandbox(sandbox, id);
    }

    static ProcessRef of(SandboxId sandbox, int pid) {
        return new ByPid(sandbox, pid);
    }

    /** An id, or a number of digits only: the pid. */
    static ProcessRef parse(SandboxId sandbox, String text) {
        if (text.isEmpty() || !text.chars().allMatch(c -> c >= '0' && c <= '9')) {
            return of(sandbox, ProcessId.parse(text));
        }
        try {
            return of(sandbox, Integer.parseInt(text));
        } catch (NumberFormatException e) {
            throw AtollException.invalid(
                    "process: \"" + text + "\" (expected: an id, or a pid)", "Correct the number.");
        }
    }
}
