package atoll.http;

/** The client is still connected and did not read for as long as is allowed. */
public final class SlowReaderException extends ClientGoneException {
    private static final long serialVersionUID = 1L;

    SlowReaderException() {
        super("the client did not read its answer in time");
    }
}
