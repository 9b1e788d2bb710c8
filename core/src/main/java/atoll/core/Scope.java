package atoll.core;

/** What a key allows its bearer to do in its project. */
public enum Scope {
    /** See sandboxes, executions and templates. */
    READ,
    /** Run code, make and delete sandboxes. */
    EXECUTE,
    /** Make and revoke keys, change settings. */
    ADMIN
}
