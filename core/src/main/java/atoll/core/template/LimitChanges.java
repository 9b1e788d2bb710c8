package atoll.core.template;

import atoll.core.AtollException;
import java.util.OptionalInt;
import java.util.OptionalLong;

/** Those of a sandbox's limits that a caller wants otherwise; what is empty stays. */
public record LimitChanges(
        OptionalLong memoryBytes,
        OptionalInt cpuMillis,
        OptionalLong diskBytes,
        OptionalInt maxProcesses,
        OptionalInt maxOpenFiles) {
    public static final LimitChanges NONE = new LimitChanges(
            OptionalLong.empty(), OptionalInt.empty(), OptionalLong.empty(), OptionalInt.empty(), OptionalInt.empty());

    public Limits applyTo(Limits limits) {
        return new Limits(
                memoryBytes.orElse(limits.memoryBytes()),
                cpuMillis.orElse(limits.cpuMillis()),
                diskBytes.orElse(limits.diskBytes()),
                maxProcesses.orElse(limits.maxProcesses()),
                maxOpenFiles.orElse(limits.maxOpenFiles()));
    }

    /** Fails if something is to change that is fixed when a sandbox is made. */
    public void requireChangeable() {
        if (diskBytes.isPresent() || maxOpenFiles.isPresent()) {
            throw AtollException.invalid(
                    "limits: " + (diskBytes.isPresent() ? "disk_bytes" : "max_open_files")
                            + " of a sandbox that is there (expected: cpu, memory_bytes or max_processes)",
                    "It is fixed when the sandbox is made: make a new one with that limit.");
        }
    }
}
