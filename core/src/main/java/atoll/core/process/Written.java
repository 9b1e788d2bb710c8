package atoll.core.process;

/**
 * How far a write to a process came.
 *
 * @param offset of the next byte of input
 * @param closed whether the input has ended
 * @param complete false where the program did not read all of it in time, or had its input closed before
 */
public record Written(long offset, boolean closed, boolean complete) {}
