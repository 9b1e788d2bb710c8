package atoll.http;

import java.util.Optional;

/** Says how an exception that this layer does not know is answered. Empty: as an internal error, logged with its stack trace. */
@FunctionalInterface
public interface ErrorMapping {
    Optional<ErrorReply> map(Throwable failure);
}
