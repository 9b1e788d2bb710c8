package atoll.api;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.http.ErrorReply;
import java.util.Locale;
import java.util.Optional;

/** Core's errors as HTTP answers. */
final class ErrorTable {
    private ErrorTable() {}

    static Optional<ErrorReply> map(Throwable failure) {
        return failure instanceof AtollException known ? Optional.of(reply(known)) : Optional.empty();
    }

    static ErrorReply reply(AtollException failure) {
        return new ErrorReply(
                status(failure.code()),
                code(failure.code()),
                failure.message(),
                failure.reason(),
                failure.remediation());
    }

    static String code(ErrorCode code) {
        return code.name().toLowerCase(Locale.ROOT);
    }

    static int status(ErrorCode code) {
        return switch (code) {
            case INVALID_REQUEST, LANGUAGE_NOT_FOUND, LANGUAGE_UNAVAILABLE, PROGRAM_NOT_FOUND -> 400;
            case UNAUTHENTICATED -> 401;
            case FORBIDDEN, PERMISSION_DENIED -> 403;
            case NOT_FOUND,
                    SANDBOX_NOT_FOUND,
                    SNAPSHOT_NOT_FOUND,
                    TEMPLATE_NOT_FOUND,
                    BUILD_NOT_FOUND,
                    IMAGE_NOT_FOUND,
                    CONTEXT_NOT_FOUND,
                    EXECUTION_NOT_FOUND,
                    PROCESS_NOT_FOUND,
                    FILE_NOT_FOUND,
                    PORT_CLOSED -> 404;
            case CONFLICT,
                    FILE_EXISTS,
                    FILE_CONFLICT,
                    SANDBOX_PAUSED,
                    SNAPSHOT_UNUSABLE,
                    UNSUPPORTED_BY_RUNTIME,
                    TEMPLATE_BUILDING,
                    TEMPLATE_BUILD_FAILED,
                    BUILD_STEP_FAILED -> 409;
            case SANDBOX_ENDED, OUTPUT_EXPIRED -> 410;
            case REQUEST_TOO_LARGE -> 413;
            case TOO_MANY_REQUESTS, QUOTA_EXCEEDED -> 429;
            case SANDBOX_START_FAILED, INTERNAL -> 500;
            case NODE_FULL, NODE_UNAVAILABLE, IMAGE_UNAVAILABLE, SHUTTING_DOWN -> 503;
            case DISK_FULL -> 507;
        };
    }
}
