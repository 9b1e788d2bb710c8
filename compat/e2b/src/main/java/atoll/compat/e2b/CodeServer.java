package atoll.compat.e2b;

import atoll.core.AtollException;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.CodeExecution;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionResult;
import atoll.core.execution.ExecutionUpdate;
import atoll.core.execution.ExitReason;
import atoll.core.execution.StandardStream;
import atoll.core.sandbox.Contexts;
import atoll.core.sandbox.CreateContext;
import atoll.core.sandbox.SeenContext;
import atoll.core.text.Utf8Joiner;
import atoll.http.Ahead;
import atoll.http.ByteStream;
import atoll.http.ClientGoneException;
import atoll.http.Exchange;
import atoll.http.HttpFailure;
import atoll.http.Json;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.EnumMap;
import java.util.Map;
import java.util.Optional;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.NullNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * Port 49999: code in contexts. Answers are lines of JSON; errors are plain text, which the SDKs show as it is. A client that goes away interrupts what it has started:
 * that is how these SDKs enforce their time limits.
 */
final class CodeServer {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final Duration KEEP_ALIVE = Duration.ofSeconds(5);
    /** The limit is the client's, who breaks off; this one is for those who never do. */
    private static final Duration LONGEST = Duration.ofHours(24);

    private final CodeExecution codeExecution;
    private final Contexts contexts;

    CodeServer(CodeExecution codeExecution, Contexts contexts) {
        this.codeExecution = codeExecution;
        this.contexts = contexts;
    }

    void serve(SandboxRequest request) throws IOException, InterruptedException {
        Exchange exchange = request.exchange();
        try {
            route(request, exchange.method() + " " + request.path());
        } catch (AtollException e) {
            text(exchange, status(e), ApiErrors.message(e), e);
        } catch (HttpFailure e) {
            text(exchange, e.reply().status(), e.reply().message(), e);
        }
    }

    private void route(SandboxRequest request, String call) throws IOException, InterruptedException {
        Exchange exchange = request.exchange();
        String context =
                request.path().startsWith("/contexts/") ? request.path().substring(10) : "";
        switch (call) {
            case "POST /execute" -> execute(request, exchange.readJson());
            case "GET /contexts" -> {
                ArrayNode all = NODES.arrayNode();
                contexts.list(request.caller(), request.sandbox()).forEach(one -> all.add(view(one)));
                exchange.json(200, all);
            }
            case "POST /contexts" -> exchange.json(200, view(create(request, exchange.readJson())));
            case "GET /health" -> text(exchange, 200, "OK");
            default -> {
                if (context.isEmpty()) {
                    text(exchange, 404, "not found");
                } else if (call.startsWith("DELETE ")) {
                    contexts.close(request.caller(), request.sandbox(), contextId(context));
                    exchange.json(200, NullNode.getInstance());
                } else if (call.startsWith("POST ") && context.endsWith("/restart")) {
                    ContextId id = contextId(context.substring(0, context.length() - "/restart".length()));
                    SeenContext restarted = contexts.restart(request.caller(), request.sandbox(), id);
                    assert restarted.context().id().equals(id);
                    exchange.json(200, NullNode.getInstance());
                } else {
                    text(exchange, 404, "not found");
                }
            }
        }
    }

    private static int status(AtollException e) {
        return switch (e.code()) {
            // The SDKs take that for a sandbox that is not there any more.
            case SANDBOX_NOT_FOUND, SANDBOX_ENDED, SANDBOX_PAUSED -> 502;
            case LANGUAGE_NOT_FOUND, LANGUAGE_UNAVAILABLE -> 500;
            default -> ApiErrors.status(e.code());
        };
    }

    private static void text(Exchange exchange, int status, String text) throws IOException, InterruptedException {
        exchange.bytes(status, "text/plain; charset=utf-8", text.getBytes(StandardCharsets.UTF_8));
    }

    private static void text(Exchange exchange, int status, String text, RuntimeException cause)
            throws IOException, InterruptedException {
        if (exchange.answered()) {
            throw cause;
        }
        text(exchange, status, text);
    }

    private static ContextId contextId(String text) {
        try {
            return ContextId.parse(text);
        } catch (AtollException e) {
            throw new AtollException(ErrorCode.CONTEXT_NOT_FOUND, "Context " + text + " not found", "", "");
        }
    }

    private SeenContext create(SandboxRequest request, JsonNode body) {
        return contexts.create(
                request.caller(),
                request.sandbox(),
                new CreateContext(
                        Text.text(body, "language"), Text.text(body, "cwd").orElse(""), Map.of()));
    }

    private static ObjectNode view(SeenContext seen) {
        return NODES.objectNode()
                .put("id", seen.context().id().toString())
                .put("language", seen.context().language().text())
                .put(
                        "cwd",
                        seen.seen()
                                .map(node -> node.cwd())
                                .orElse(seen.context().cwd()));
    }

    private void execute(SandboxRequest request, JsonNode body) throws IOException, InterruptedException {
        Optional<String> context = Text.text(body, "context_id");
        Optional<String> language = Text.text(body, "language");
        if (context.isPresent() && language.isPresent()) {
            throw Text.invalid("Only one of context_id or language can be provided");
        }
        JsonNode code = body.get("code");
        if (code == null || !code.isString()) {
            throw Text.invalid("code is missing");
        }
        CodeExecRequest run = CodeExecRequest.of(code.stringValue())
                .in(request.sandbox())
                .withTimeout(LONGEST)
                .withEnv(Text.texts(body, "env_vars"));
        if (context.isPresent()) {
            run = run.in(contextId(context.get()));
        } else if (language.isPresent()) {
            run = run.withLanguage(Language.parse(language.get()).text());
        }
        ExecutionHandle handle = codeExecution.start(request.caller(), run);
        boolean heard = false;
        try (var updates = new Ahead<>(handle.executionId().toString(), handle::next, handle::close)) {
            new Lines(request.exchange()).tell(handle, updates);
            heard = true;
        } finally {
            if (!heard) {
                interrupt(handle);
            }
        }
    }

    private static void interrupt(ExecutionHandle handle) {
        try {
            handle.interrupt();
        } catch (AtollException e) {
            // The sandbox has gone, and the code with it.
            assert e.code() != ErrorCode.INVALID_REQUEST;
        }
    }

    /** The lines of one answer. */
    private static final class Lines {
        private final Exchange exchange;
        private final Map<StandardStream, Utf8Joiner> joiners = new EnumMap<>(StandardStream.class);
        private final ByteStream out;

        Lines(Exchange exchange) {
            this.exchange = exchange;
            this.out = exchange.stream(200, "application/x-ndjson");
            for (StandardStream stream : StandardStream.values()) {
                joiners.put(stream, new Utf8Joiner());
            }
        }

        void tell(ExecutionHandle handle, Ahead<ExecutionUpdate> updates) throws IOException, InterruptedException {
            line(NODES.objectNode()
                    .put("type", "number_of_executions")
                    .put("execution_count", handle.number().orElse(0)));
            boolean ended = false;
            while (!ended) {
                ExecutionUpdate update = updates.poll(KEEP_ALIVE);
                if (update == null) {
                    line(NODES.objectNode().put("type", "keepalive"));
                } else {
                    ended = tell(update);
                }
            }
        }

        /** Whether it was the end. */
        private boolean tell(ExecutionUpdate update) throws IOException, InterruptedException {
            switch (update) {
                case ExecutionUpdate.Output output ->
                    output(output.stream(), joiner(output.stream()).decode(output.data()));
                case ExecutionUpdate.Result result -> {
                    // This protocol only adds: what was shown stays as it was.
                    boolean adds = !result.result().update()
                            && !(result.result().clear()
                                    && result.result().data().isEmpty());
                    if (adds) {
                        line(result(result.result()));
                    }
                }
                case ExecutionUpdate.Gap gap ->
                    output(gap.stream(), "\n[" + gap.bytes() + " bytes of output were dropped]\n");
                case ExecutionUpdate.Finished finished -> {
                    finish(finished.outcome());
                    return true;
                }
            }
            return false;
        }

        private Utf8Joiner joiner(StandardStream stream) {
            Utf8Joiner joiner = joiners.get(stream);
            if (joiner == null) {
                throw new IllegalStateException("no stream " + stream);
            }
            return joiner;
        }

        private void output(StandardStream stream, String text) throws IOException, InterruptedException {
            if (!text.isEmpty()) {
                line(NODES.objectNode()
                        .put("type", stream == StandardStream.STDOUT ? "stdout" : "stderr")
                        .put("text", text)
                        .put("timestamp", Text.time(Instant.now())));
            }
        }

        private void finish(ExecutionOutcome outcome) throws IOException, InterruptedException {
            if (outcome.exitReason() == ExitReason.SANDBOX_ENDED || outcome.exitReason() == ExitReason.LOST) {
                // The answer is cut, as it is when the server of a sandbox dies with it.
                throw gone(outcome.detail());
            }
            for (StandardStream stream : StandardStream.values()) {
                output(stream, joiner(stream).end());
            }
            Optional<ObjectNode> error = outcome.error()
                    .map(thrown -> error(thrown.name(), thrown.message(), thrown.traceback()))
                    .or(() -> stopped(outcome));
            if (error.isPresent()) {
                line(error.get());
            }
            line(NODES.objectNode().put("type", "end_of_execution"));
            out.finish();
        }

        /** What ended otherwise than by itself is an error in this protocol too. */
        private static Optional<ObjectNode> stopped(ExecutionOutcome outcome) {
            String name = switch (outcome.exitReason()) {
                case COMPLETED, ERROR, EXITED, SANDBOX_ENDED, LOST -> "";
                case TIMEOUT -> "TimeoutError";
                case INTERRUPTED -> "KeyboardInterrupt";
                case OUT_OF_MEMORY -> "MemoryError";
                case KERNEL_DIED -> "KernelDied";
            };
            return name.isEmpty() ? Optional.empty() : Optional.of(error(name, outcome.detail(), outcome.detail()));
        }

        private static ObjectNode error(String name, String value, String traceback) {
            return NODES.objectNode()
                    .put("type", "error")
                    .put("name", name)
                    .put("value", value)
                    .put("traceback", traceback);
        }

        private static ObjectNode result(ExecutionResult result) {
            ObjectNode line = NODES.objectNode();
            line.put("type", "result");
            byte[] bundle = result.data().json().getBytes(StandardCharsets.UTF_8);
            ResultForms.put(line, Json.parse(bundle, bundle.length));
            return line.put("is_main_result", result.main());
        }

        private void line(ObjectNode line) throws IOException, InterruptedException {
            byte[] text = Json.bytes(line);
            ByteBuffer whole = ByteBuffer.allocate(text.length + 1);
            whole.put(text).put((byte) '\n').flip();
            out.write(whole);
        }

        private ClientGoneException gone(String why) {
            return new ClientGoneException(exchange.requestId() + " is cut: " + why);
        }
    }
}
