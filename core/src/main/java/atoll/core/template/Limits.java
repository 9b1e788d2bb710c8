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

    private static final int MIN_CPU = 10;
    private static final long MIN_MEMORY = 64 * MIB;
    private static final long MIN_DISK = 16 * MIB;
    private static final int MIN_OPEN_FILES = 256;

    public Limits {
        check("memory_bytes", memoryBytes, MIN_MEMORY);
        // The kernel refuses quotas below 1 ms of every 100.
        if (cpuMillis != 0 && cpuMillis < MIN_CPU) {
            throw AtollException.invalid(
                    "cpu: " + cpuMillis / 1000.0 + " (expected: 0 for no limit, or at least " + MIN_CPU / 1000.0 + ")",
                    "Give the sandbox more.");
        }
        check("disk_bytes", diskBytes, MIN_DISK);
        check("max_processes", maxProcesses, 16);
        // An interpreter does not start with 100.
        check("max_open_files", maxOpenFiles, MIN_OPEN_FILES);
    }

    /**
     * Whether a box that was made with {@code other} can get these. Disk and open files are fixed when it is made, and the kernels
     * that are warm in it keep the number of processes that they were started with.
     */
    public boolean assignableFrom(Limits other) {
        return changeableTo(other) && maxProcesses == other.maxProcesses;
    }

    /** Whether only such limits differ that can change while a sandbox runs. */
    public boolean changeableTo(Limits other) {
        return diskBytes == other.diskBytes && maxOpenFiles == other.maxOpenFiles;
    }

    private static void check(String name, long value, long least) {
        if (value < least) {
            throw AtollException.invalid(
                    name + ": " + value + " (expected: at least " + least + ")", "Give the sandbox more.");
        }
    }
}
