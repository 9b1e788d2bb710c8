package atoll.http;

/**
 * An error as callers see it: {@code {"error": {code, message, cause, remediation}}}.
 *
 * @param code stable and lower case, for programs
 * @param message what happened, with the values
 * @param cause why; may be empty
 * @param remediation what to do next; may be empty
 */
public record ErrorReply(int status, String code, String message, String cause, String remediation) {

    public ErrorReply {
        if (status < 400 || status > 599) {
            throw new IllegalArgumentException("status: %s (expected: 400 to 599)".formatted(status));
        }
    }
}
