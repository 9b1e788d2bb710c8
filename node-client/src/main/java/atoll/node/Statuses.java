package atoll.node;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import io.grpc.Status;
import java.io.IOException;
import java.util.List;
import java.util.Locale;

/** What the engine's statuses mean in core. */
final class Statuses {
    private Statuses() {}

    static AtollException failure(Status told, String what) {
        // gRPC calls it unknown when the connection breaks in the moment that a call is written to it.
        Status status = told.getCode() == Status.Code.UNKNOWN && told.getCause() instanceof IOException
                ? Status.UNAVAILABLE.withDescription(told.getDescription()).withCause(told.getCause())
                : told;
        String said = status.getDescription() == null ? status.getCode().name() : status.getDescription();
        String message = what + ": " + said;
        if (PausedBox.isCauseOf(status)) {
            return paused(message);
        }
        return switch (status.getCode()) {
            case NOT_FOUND -> error(ErrorCode.NOT_FOUND, message, "The node does not know it.", "", status);
            case ALREADY_EXISTS, FAILED_PRECONDITION, ABORTED ->
                error(ErrorCode.CONFLICT, message, "The state on the node does not allow it.", "", status);
            case INVALID_ARGUMENT, OUT_OF_RANGE ->
                error(ErrorCode.INVALID_REQUEST, message, "The node refuses it.", "Correct the request.", status);
            case RESOURCE_EXHAUSTED -> exhausted(said, message, status);
            case UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED ->
                error(
                        ErrorCode.NODE_UNAVAILABLE,
                        message,
                        "The engine of the node can't be reached.",
                        "It may be restarting: try again. `./atoll doctor` checks the machine.",
                        status);
            case PERMISSION_DENIED, UNAUTHENTICATED ->
                error(
                        ErrorCode.NODE_UNAVAILABLE,
                        message,
                        "The engine does not take calls from this user.",
                        "Run the server as a user in the group of the engine's socket.",
                        status);
            case UNIMPLEMENTED ->
                said.startsWith(OF_RUNTIME)
                        ? error(
                                ErrorCode.UNSUPPORTED_BY_RUNTIME,
                                message,
                                "The sandbox's runtime can't do it.",
                                "Use a template whose runtime is gvisor.",
                                status)
                        : AtollException.internal(message, status.asException());
            case OK, UNKNOWN, INTERNAL, DATA_LOSS -> AtollException.internal(message, status.asException());
        };
    }

    /** How an engine begins to say that a runtime can't do something; one that does not know a call says it in gRPC's words. */
    private static final String OF_RUNTIME = "the runtime ";

    private static AtollException paused(String message) {
        return new AtollException(
                ErrorCode.SANDBOX_PAUSED,
                message,
                "The sandbox is paused, and this needs it to run.",
                "Resume it with POST /v1/sandboxes/{id}:resume and try again.");
    }

    /** What a restore says of a snapshot that is at fault, or of what it needs, and not of the box. */
    private static final List<String> OF_SNAPSHOTS = List.of("snapshot", "made with", "not on this node");

    /** Of a call that makes something of a snapshot; other things than the snapshot may be at fault. */
    static AtollException ofSnapshot(Status status, String what) {
        String said = status.getDescription() == null ? "" : status.getDescription();
        String lower = said.toLowerCase(Locale.ROOT);
        boolean snapshot = OF_SNAPSHOTS.stream().anyMatch(lower::contains);
        if (!snapshot || lower.contains("has ended") || PausedBox.isCauseOf(status)) {
            return failure(status, what);
        }
        if (status.getCode() == Status.Code.NOT_FOUND && lower.contains("snapshot")) {
            return error(
                    ErrorCode.SNAPSHOT_NOT_FOUND,
                    what + ": " + said,
                    "The node does not have the snapshot.",
                    "It was deleted or has expired: see /v1/snapshots.",
                    status);
        }
        if (status.getCode() == Status.Code.NOT_FOUND || status.getCode() == Status.Code.FAILED_PRECONDITION) {
            return error(
                    ErrorCode.SNAPSHOT_UNUSABLE,
                    what + ": " + said,
                    "The node can't restore this snapshot.",
                    "Use another one, or the installation that made it.",
                    status);
        }
        return failure(status, what);
    }

    /** What failed and how; the end of what it printed comes after. */
    private static String firstLine(String message) {
        return message.lines().findFirst().orElse("");
    }

    private static String itPrinted(String message) {
        int end = message.indexOf('\n');
        return end < 0 ? "" : " It printed last:" + message.substring(end);
    }

    /**
     * Of a call that makes an image.
     *
     * @param accepted whether the node had taken it on: then it is a registry that can't be reached, and no node
     */
    static AtollException ofImage(Status status, String what, boolean accepted) {
        String said = status.getDescription() == null ? status.getCode().name() : status.getDescription();
        String message = what + ": " + said;
        return switch (status.getCode()) {
            case NOT_FOUND ->
                error(
                        ErrorCode.IMAGE_NOT_FOUND,
                        message,
                        "There is nothing of that name to make it of.",
                        "Correct the reference.",
                        status);
            case FAILED_PRECONDITION ->
                said.contains("newer server") || said.contains("epoch")
                        ? failure(status, what)
                        : error(
                                ErrorCode.BUILD_STEP_FAILED,
                                firstLine(message),
                                "A step of the build failed." + itPrinted(message),
                                "Its log has the step's output.",
                                status);
            case PERMISSION_DENIED, UNAUTHENTICATED ->
                accepted
                        ? error(
                                ErrorCode.IMAGE_UNAVAILABLE,
                                message,
                                "The registry refuses.",
                                "Give its credentials with PUT /v1/registries/{host}.",
                                status)
                        : failure(status, what);
            case UNAVAILABLE ->
                accepted
                        ? error(
                                ErrorCode.IMAGE_UNAVAILABLE,
                                message,
                                "What it is made of can't be reached from the node.",
                                "Check the reference and the node's network, and try again.",
                                status)
                        : failure(status, what);
            case OK,
                    CANCELLED,
                    UNKNOWN,
                    INVALID_ARGUMENT,
                    DEADLINE_EXCEEDED,
                    ALREADY_EXISTS,
                    RESOURCE_EXHAUSTED,
                    ABORTED,
                    OUT_OF_RANGE,
                    UNIMPLEMENTED,
                    INTERNAL,
                    DATA_LOSS -> failure(status, what);
        };
    }

    private static AtollException exhausted(String said, String message, Status status) {
        String lower = said.toLowerCase(Locale.ROOT);
        boolean disk = lower.contains("disk") || lower.contains("no space left");
        return error(
                disk ? ErrorCode.DISK_FULL : ErrorCode.NODE_FULL,
                message,
                disk ? "The node's disk is full." : "The node has no room for it.",
                "Delete sandboxes that are not needed, or try again later.",
                status);
    }

    private static AtollException error(
            ErrorCode code, String message, String reason, String remediation, Status status) {
        return new AtollException(code, message, reason, remediation, status.getCause());
    }
}
