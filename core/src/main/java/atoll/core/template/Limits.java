package atoll.core.template;

import atoll.core.AtollException;

/**
 * What a sandbox may use.
 *
 * @param cpuMillis thousandths of a CPU; 0 for no limit
 */
public record Limits(long memoryBytes, int cpuMillis, long diskBytes, int maxProcesses, int maxOpenFiles) {
    private static final long MIB = 1024 * 1024;
    /** What a sandbox gets when nobody says anything else. */
    public static final Limits DEFAULT = new Limits(256 * MIB, 500, 1024 * MIB, 256, 4096);

    private static final long MIN_MEMORY = 64 * MIB;
    private static final long MIN_DISK = 16 * MIB;

    public Limits {
        check("memory", memoryBytes, MIN_MEMORY);
        check("cpu_millis", cpuMillis, 0);
        check("disk", diskBytes, MIN_DISK);
        check("max_processes", maxProcesses, 16);
        check("max_open_files", maxOpenFiles, 64);
    }

    private static void check(String name, long value, long least) {
        if (value < least) {
            throw AtollException.invalid(
                    name + ": " + value + " (expected: at least " + least + ")", "Give the sandbox more.");
        }
    }
}
