package atoll.http;

/** Answers one request, on a virtual thread: it may block. What it throws becomes an error answer. */
@FunctionalInterface
public interface RouteHandler {
    void handle(Exchange exchange) throws Exception;
}
