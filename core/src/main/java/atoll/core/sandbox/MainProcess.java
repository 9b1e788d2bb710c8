package atoll.core.sandbox;

import atoll.core.ProcessId;

/**
 * The process that a sandbox is there for.
 *
 * @param endsSandbox whether its end is the sandbox's
 */
public record MainProcess(ProcessId id, boolean endsSandbox) {}
