package atoll.core.process;

/** Which bytes of a process to read. */
public enum OutputChoice {
    STDOUT,
    STDERR,
    /** Both in the order in which they came; offsets count both. */
    COMBINED
}
