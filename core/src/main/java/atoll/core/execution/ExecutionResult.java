package atoll.core.execution;

/**
 * A value that an execution displayed.
 *
 * @param main true for the value of the last expression, false for one shown by display()
 * @param truncatedBytes bytes left out because the bundle was over the limit; 0 when it is whole
 */
public record ExecutionResult(boolean main, MimeBundle data, long truncatedBytes) {}
