package atoll.core;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The one exception of core. Its message says what happened with the values concerned, {@link #reason()} why, and
 * {@link #remediation()} what to do next. None of the three ever holds a secret.
 */
public final class AtollException extends RuntimeException {
    private final ErrorCode code;
    private final String reason;
    private final String remediation;

    public AtollException(ErrorCode code, String message, String reason, String remediation) {
        this(code, message, reason, remediation, null);
    }

    public AtollException(
            ErrorCode code, String message, String reason, String remediation, @Nullable Throwable origin) {
        // A caller's mistake is no event worth a stack walk: such errors are made by the thousand and never logged with
        // one.
        super(
                Objects.requireNonNull(message),
                origin,
                false,
                Objects.requireNonNull(code).fault() != ErrorCode.Fault.CALLER);
        this.code = code;
        this.reason = reason;
        this.remediation = remediation;
    }

    public static AtollException invalid(String message, String remediation) {
        return new AtollException(ErrorCode.INVALID_REQUEST, message, "", remediation);
    }

    public static AtollException internal(String message, @Nullable Throwable origin) {
        return new AtollException(
                ErrorCode.INTERNAL,
                message,
                origin == null ? "" : String.valueOf(origin.getMessage()),
                "Look for this message in the server's log; if it happens again, report it.",
                origin);
    }

    public ErrorCode code() {
        return code;
    }

    public String message() {
        return Objects.requireNonNullElse(getMessage(), "");
    }

    /** Why it happened; empty where the message says it all. */
    public String reason() {
        return reason;
    }

    /** What the reader can do about it; empty where nothing can be said. */
    public String remediation() {
        return remediation;
    }
}
