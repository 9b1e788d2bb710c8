package atoll.core.sandbox;

/**
 * The answer to a create.
 *
 * @param got whether it was there already, and was asked for by its name
 */
public record Created(Sandbox sandbox, boolean got) {}
