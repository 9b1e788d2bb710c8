package atoll.core.process;

import atoll.core.execution.PrintedText;

/**
 * A process and what it printed.
 *
 * @param process ended, unless the time was up before
 */
public record ProcessResult(ProcessRecord process, PrintedText printed) {}
