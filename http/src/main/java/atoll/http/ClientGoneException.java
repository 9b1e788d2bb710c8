package atoll.http;

import java.io.IOException;
import org.eclipse.jetty.io.QuietException;

/** The client does not take its answer any more. Never logged as an error, and never a reason to end what the client had started. */
public class ClientGoneException extends IOException implements QuietException {
    private static final long serialVersionUID = 1L;

    ClientGoneException(Throwable cause) {
        super("the client has gone", cause);
    }

    /** For an answer that is to be cut in the middle, since that is how its protocol says that what it was about has gone. */
    public ClientGoneException(String message) {
        super(message);
    }
}
