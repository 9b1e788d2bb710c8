package atoll.node;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import io.grpc.Status;
import java.util.Locale;

/** What the engine's statuses mean in core. */
final class Statuses {
    private Statuses() {}

    static AtollException failure(Status status, String what) {
        String said = status.getDescription() == null ? status.getCode().name() : status.getDescription();
        String message = what + ": " + said;
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
            case OK, UNKNOWN, UNIMPLEMENTED, INTERNAL, DATA_LOSS ->
                AtollException.internal(message, status.asException());
        };
    }

    private static AtollException exhausted(String said, String message, Status status) {
        boolean disk = said.toLowerCase(Locale.ROOT).contains("disk");
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
