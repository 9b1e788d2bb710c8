package atoll.compat.e2b;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.http.Exchange;
import atoll.http.HttpFailure;
import atoll.http.RouteHandler;
import java.io.IOException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/** Errors of the control plane and of what is no RPC: {@code {"code": <HTTP status>, "message": …}}. The SDKs look at that code rather than at the status. */
final class ApiErrors {
    private static final Logger LOG = LoggerFactory.getLogger(ApiErrors.class);

    private ApiErrors() {}

    static int status(ErrorCode code) {
        return switch (code) {
            case INVALID_REQUEST,
                    LANGUAGE_NOT_FOUND,
                    LANGUAGE_UNAVAILABLE,
                    PROGRAM_NOT_FOUND,
                    FILE_CONFLICT,
                    SNAPSHOT_UNUSABLE,
                    UNSUPPORTED_BY_RUNTIME -> 400;
            case UNAUTHENTICATED -> 401;
            case FORBIDDEN, PERMISSION_DENIED -> 403;
            case NOT_FOUND,
                    SANDBOX_NOT_FOUND,
                    SANDBOX_ENDED,
                    SNAPSHOT_NOT_FOUND,
                    TEMPLATE_NOT_FOUND,
                    BUILD_NOT_FOUND,
                    IMAGE_NOT_FOUND,
                    CONTEXT_NOT_FOUND,
                    EXECUTION_NOT_FOUND,
                    PROCESS_NOT_FOUND,
                    FILE_NOT_FOUND,
                    OUTPUT_EXPIRED -> 404;
            case CONFLICT, FILE_EXISTS, SANDBOX_PAUSED, TEMPLATE_BUILDING, TEMPLATE_BUILD_FAILED, BUILD_STEP_FAILED ->
                409;
            case REQUEST_TOO_LARGE -> 413;
            case TOO_MANY_REQUESTS, QUOTA_EXCEEDED -> 429;
            case SANDBOX_START_FAILED, INTERNAL -> 500;
            case PORT_CLOSED -> 502;
            case NODE_FULL, NODE_UNAVAILABLE, IMAGE_UNAVAILABLE, SHUTTING_DOWN -> 503;
            case DISK_FULL -> 507;
        };
    }

    /** A handler that fails in known ways only. */
    interface Answering {
        void handle(Exchange exchange) throws IOException, InterruptedException;
    }

    /** Has the handler's failures answered in this form. */
    static RouteHandler answering(Answering handler) {
        return exchange -> answer(exchange, handler);
    }

    static void answer(Exchange exchange, Answering handler) throws IOException, InterruptedException {
        try {
            handler.handle(exchange);
        } catch (AtollException e) {
            if (exchange.answered()) {
                throw e;
            }
            if (e.code().fault() == ErrorCode.Fault.OURS) {
                LOG.error("{} {} failed", exchange.requestId(), exchange.method(), e);
            }
            answer(exchange, status(e.code()), message(e));
        } catch (HttpFailure e) {
            if (exchange.answered()) {
                throw e;
            }
            answer(exchange, e.reply().status(), e.reply().message());
        } catch (RuntimeException e) {
            if (exchange.answered()) {
                throw e;
            }
            LOG.error("{} {} failed", exchange.requestId(), exchange.method(), e);
            answer(exchange, 500, "the server failed to answer; its log has more under " + exchange.requestId());
        }
    }

    /** What people read: the message, and what to do about it. */
    static String message(AtollException e) {
        return e.remediation().isEmpty() ? e.message() : e.message() + " (" + e.remediation() + ")";
    }

    static void answer(Exchange exchange, int status, String message) throws IOException, InterruptedException {
        if (status == 429) {
            exchange.responseHeader("Retry-After", "1");
        }
        if (status == 429 || status > 500) {
            // The Python SDK repeats calls by itself: one that makes something may only be repeated with a key.
            boolean repeatable = !exchange.method().equals("POST") || exchange.header("Idempotency-Key") != null;
            exchange.responseHeader("Should-Retry", Boolean.toString(repeatable));
        }
        ObjectNode body = JsonNodeFactory.instance.objectNode();
        body.put("code", status);
        body.put("message", message);
        exchange.json(status, body);
    }
}
