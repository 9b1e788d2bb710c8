package atoll.core.execution;

/** What the code threw, with the traceback a person would see. */
public record ExecutionError(String name, String message, String traceback) {}
