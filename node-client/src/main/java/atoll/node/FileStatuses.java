package atoll.node;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import io.grpc.Status;

/** What the statuses of file calls mean in core: there they carry what the system inside the sandbox said, and the message names the path. */
final class FileStatuses {
    private FileStatuses() {}

    static AtollException failure(Status status) {
        if (PausedBox.isCauseOf(status)) {
            return Statuses.failure(status, "files");
        }
        String said = status.getDescription() == null ? status.getCode().name() : status.getDescription();
        return switch (status.getCode()) {
            case NOT_FOUND ->
                error(
                        ErrorCode.FILE_NOT_FOUND,
                        said,
                        "Nothing is there, for this user.",
                        "Check the path; a relative one starts at the user's home.",
                        status);
            case ALREADY_EXISTS ->
                error(
                        ErrorCode.FILE_EXISTS,
                        said,
                        "The path is taken.",
                        "Remove it first, allow overwriting, or use another path.",
                        status);
            case FAILED_PRECONDITION ->
                error(
                        ErrorCode.FILE_CONFLICT,
                        said,
                        "What is there does not allow it.",
                        "Look at the path with files:stat; folders need recursive.",
                        status);
            case ABORTED ->
                error(ErrorCode.FILE_CONFLICT, said, "The file changed during the call.", "Try again.", status);
            case PERMISSION_DENIED ->
                error(
                        ErrorCode.PERMISSION_DENIED,
                        said,
                        "The user inside the sandbox lacks the right.",
                        "Name another user (user=root), or change mode or owner.",
                        status);
            case RESOURCE_EXHAUSTED ->
                error(
                        ErrorCode.DISK_FULL,
                        said,
                        "The sandbox's disk, or another of its limits, is used up.",
                        "Remove files in it, or start a sandbox with a larger limits.disk_bytes.",
                        status);
            case INVALID_ARGUMENT, OUT_OF_RANGE ->
                error(ErrorCode.INVALID_REQUEST, said, "The sandbox refuses it.", "Correct the request.", status);
            default -> Statuses.failure(status, "files");
        };
    }

    private static AtollException error(
            ErrorCode code, String message, String reason, String remediation, Status status) {
        return new AtollException(code, message, reason, remediation, status.getCause());
    }
}
