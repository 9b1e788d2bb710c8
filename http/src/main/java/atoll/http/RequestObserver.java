package atoll.http;

/** Told of each request when it was answered; called on the request's thread, so implementations only count. */
@FunctionalInterface
public interface RequestObserver {
    RequestObserver NONE = (route, method, status, nanos) -> {};

    /** One answered request; {@code route} is the pattern of its route, or {@code unmatched}. */
    void ended(String route, String method, int status, long nanos);
}
