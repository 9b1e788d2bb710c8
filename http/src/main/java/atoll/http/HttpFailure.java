package atoll.http;

/** A request that cannot be answered otherwise than by an error; {@link #reply()} is what the caller gets. */
public final class HttpFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final transient ErrorReply reply;

    public HttpFailure(ErrorReply reply) {
        // Without a stack trace: these are the caller's faults and never logged with one.
        super(reply.message(), null, false, false);
        this.reply = reply;
    }

    public static HttpFailure badRequest(String code, String message, String remediation) {
        return new HttpFailure(new ErrorReply(400, code, message, "", remediation));
    }

    public ErrorReply reply() {
        return reply;
    }
}
