package atoll.core.process;

/** How far the input of a process has been written. */
public record InputPosition(long offset, boolean closed) {}
