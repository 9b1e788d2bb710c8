package atoll.core.sandbox;

import atoll.core.process.StartProcess;

/**
 * The main process of a new sandbox, as a caller asks for it.
 *
 * @param endsSandbox whether its end is the sandbox's
 */
public record CreateMain(StartProcess process, boolean endsSandbox) {}
