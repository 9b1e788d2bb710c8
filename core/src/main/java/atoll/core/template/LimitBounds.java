package atoll.core.template;

import atoll.core.AtollException;

/**
 * How far callers may raise a sandbox's limits.
 *
 * @param cpuMillis thousandths of a CPU; 0 for no bound: only then may a sandbox have no CPU limit
 */
public record LimitBounds(long memoryBytes, int cpuMillis, long diskBytes, int maxProcesses, int maxOpenFiles) {
    private static final long GIB = 1024L * 1024 * 1024;
    /** The last is what the engine's own processes inside a sandbox may have. */
    public static final LimitBounds DEFAULT = new LimitBounds(16 * GIB, 0, 64 * GIB, 4096, 65536);

    /** Returns the limits; fails for those that go too far. */
    public Limits check(Limits limits) {
        check("memory_bytes", limits.memoryBytes(), memoryBytes, "bounds.memory_mib");
        check("disk_bytes", limits.diskBytes(), diskBytes, "bounds.disk_mib");
        check("max_processes", limits.maxProcesses(), maxProcesses, "bounds.processes");
        check("max_open_files", limits.maxOpenFiles(), maxOpenFiles, "bounds.open_files");
        if (cpuMillis > 0 && limits.cpuMillis() == 0) {
            throw AtollException.invalid(
                    "cpu: no limit (expected: at most " + cpuMillis / 1000.0 + ")",
                    "Ask for a limit, or raise the setting bounds.cpu_millis (0 for no bound).");
        }
        if (cpuMillis > 0) {
            check("cpu in thousandths", limits.cpuMillis(), cpuMillis, "bounds.cpu_millis");
        }
        return limits;
    }

    private static void check(String name, long value, long most, String setting) {
        if (value > most) {
            throw AtollException.invalid(
                    name + ": " + value + " (expected: at most " + most + ")",
                    "Ask for less, or raise the setting " + setting + ".");
        }
    }
}
