package atoll.core.execution;

import atoll.core.Caller;

/** Runs code: what {@code code_exec} is. */
public interface CodeExecution {
    /**
     * Starts the code in the sandbox named, or in a new one. Returns as soon as the ids are known and the node has been asked; the
     * code may still wait for its context. Failures to run at all are thrown here; what the code does wrong is in its outcome.
     */
    ExecutionHandle start(Caller caller, CodeExecRequest request) throws InterruptedException;

    /**
     * The same for a caller that does not wait for the end: when this returns, nothing that is started in the same context later can
     * overtake it.
     */
    ExecutionHandle startInBackground(Caller caller, CodeExecRequest request) throws InterruptedException;
}
