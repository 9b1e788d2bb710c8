package atoll.core;

/** Every way a call can fail, grouped by who can do something about it. Adapters map each code to their own protocol's form. */
public enum ErrorCode {
    INVALID_REQUEST(Fault.CALLER),
    UNAUTHENTICATED(Fault.CALLER),
    FORBIDDEN(Fault.CALLER),
    NOT_FOUND(Fault.CALLER),
    SANDBOX_NOT_FOUND(Fault.CALLER),
    /** The sandbox was there and is not any more; the message says why it ended. */
    SANDBOX_ENDED(Fault.CALLER),
    /** The sandbox is paused, and is not one that is resumed by use. */
    SANDBOX_PAUSED(Fault.CALLER),
    SNAPSHOT_NOT_FOUND(Fault.CALLER),
    /** The snapshot can't be restored here: another build made it, its image is not there, or it was changed. */
    SNAPSHOT_UNUSABLE(Fault.CALLER),
    /** What the sandbox's runtime can't do at all, such as memory snapshots in Docker. */
    UNSUPPORTED_BY_RUNTIME(Fault.CALLER),
    TEMPLATE_NOT_FOUND(Fault.CALLER),
    /** The last build of the template failed; the message says where. */
    TEMPLATE_BUILD_FAILED(Fault.CALLER),
    /** A step of an image's build failed. */
    BUILD_STEP_FAILED(Fault.CALLER),
    BUILD_NOT_FOUND(Fault.CALLER),
    /** The node has no such image, or a registry has none of that reference. */
    IMAGE_NOT_FOUND(Fault.CALLER),
    /** No language of that name is known. */
    LANGUAGE_NOT_FOUND(Fault.CALLER),
    /** The language is known, but the template does not have it. */
    LANGUAGE_UNAVAILABLE(Fault.CALLER),
    CONTEXT_NOT_FOUND(Fault.CALLER),
    EXECUTION_NOT_FOUND(Fault.CALLER),
    PROCESS_NOT_FOUND(Fault.CALLER),
    /** The program to start is not in the sandbox. */
    PROGRAM_NOT_FOUND(Fault.CALLER),
    /** The execution is on record, its full output has been removed by retention. */
    OUTPUT_EXPIRED(Fault.CALLER),
    /** The path is not there, inside the sandbox. */
    FILE_NOT_FOUND(Fault.CALLER),
    /** The path is there already, inside the sandbox. */
    FILE_EXISTS(Fault.CALLER),
    /** What is at the path does not allow it: a folder where a file was expected or the other way round, a folder that is not empty, no regular file. */
    FILE_CONFLICT(Fault.CALLER),
    /** The user inside the sandbox lacks the right; unlike {@link #FORBIDDEN}, which is about the caller's key. */
    PERMISSION_DENIED(Fault.CALLER),
    REQUEST_TOO_LARGE(Fault.CALLER),
    /** The same idempotency key came with another request, or the state does not allow the call. */
    CONFLICT(Fault.CALLER),

    TOO_MANY_REQUESTS(Fault.NOT_NOW),
    /** The project has as many live sandboxes as it may have. */
    QUOTA_EXCEEDED(Fault.NOT_NOW),
    NODE_FULL(Fault.NOT_NOW),
    NODE_UNAVAILABLE(Fault.NOT_NOW),
    /** The node's disk, or the sandbox's. */
    DISK_FULL(Fault.NOT_NOW),
    /** Nothing listens on the port, inside the sandbox. */
    PORT_CLOSED(Fault.NOT_NOW),
    /** The template's image is being built. */
    TEMPLATE_BUILDING(Fault.NOT_NOW),
    /** The template's image is not on the node (yet), or what it is made of can't be had right now. */
    IMAGE_UNAVAILABLE(Fault.NOT_NOW),
    SHUTTING_DOWN(Fault.NOT_NOW),

    SANDBOX_START_FAILED(Fault.OURS),
    INTERNAL(Fault.OURS);

    /** Who can do something about it. */
    public enum Fault {
        /** The same call will fail again. */
        CALLER,
        /** The same call may succeed later. */
        NOT_NOW,
        /** A defect or a broken machine; logged with its stack trace. */
        OURS
    }

    private final Fault fault;

    ErrorCode(Fault fault) {
        this.fault = fault;
    }

    public Fault fault() {
        return fault;
    }
}
