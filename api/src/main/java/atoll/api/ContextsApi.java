package atoll.api;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.SandboxId;
import atoll.core.execution.CodeExecution;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionQuery;
import atoll.core.execution.Executions;
import atoll.core.sandbox.Contexts;
import atoll.core.sandbox.CreateContext;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/** {@code /v1/sandboxes/{sandbox_id}/contexts}: stateful interpreters, and code in them. */
final class ContextsApi {
    private static final Set<String> CREATE = Set.of("language", "cwd", "env");

    private final Contexts contexts;
    private final CodeExecution codeExecution;
    private final Executions executions;

    ContextsApi(Contexts contexts, CodeExecution codeExecution, Executions executions) {
        this.contexts = contexts;
        this.codeExecution = codeExecution;
        this.executions = executions;
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<Wire.ContextView> all = contexts.list(caller, sandbox(exchange)).stream()
                .map(Wire.ContextView::of)
                .toList();
        exchange.json(200, new Wire.Items<>(all, Optional.empty()));
    }

    void create(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJsonIfAny(), CREATE);
        var request =
                new CreateContext(fields.text("language"), fields.text("cwd").orElse(""), fields.texts("env"));
        exchange.json(201, Wire.ContextView.of(contexts.create(caller, sandbox(exchange), request)));
    }

    void get(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, Wire.ContextView.of(contexts.get(caller, sandbox(exchange), context(exchange))));
    }

    void close(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        contexts.close(caller, sandbox(exchange), context(exchange));
        exchange.empty(204);
    }

    void restart(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, Wire.ContextView.of(contexts.restart(caller, sandbox(exchange), context(exchange))));
    }

    void interrupt(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Optional<ExecutionId> interrupted = executions.interruptContext(caller, sandbox(exchange), context(exchange));
        exchange.json(200, new Interrupted(interrupted.map(ExecutionId::toString)));
    }

    record Interrupted(Optional<String> executionId) {}

    /** As code_exec; in the background, the answer comes at once and the execution is there to be followed. */
    void execute(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        CodeExecArguments arguments = CodeExecArguments.inContext(exchange.readJson());
        boolean stream = arguments.stream() || exchange.accepts("text/event-stream");
        var request = arguments
                .request(Optional.ofNullable(exchange.header("Idempotency-Key")))
                .in(sandbox(exchange))
                .in(context(exchange));
        if (arguments.background() && stream) {
            throw AtollException.invalid(
                    "background: true with a stream (expected: one of both)",
                    "GET /v1/executions/{execution_id}/events follows one in the background.");
        }
        ExecutionHandle handle = arguments.background()
                ? codeExecution.startInBackground(caller, request)
                : codeExecution.start(caller, request);
        if (stream) {
            ExecutionEvents.write(exchange, handle);
            return;
        }
        try (handle) {
            if (arguments.background()) {
                exchange.json(
                        202,
                        new Wire.Start(
                                handle.executionId().toString(),
                                handle.sandboxId().toString(),
                                handle.contextId().toString()));
            } else {
                exchange.json(200, Wire.Outcome.of(handle.await()));
            }
        }
    }

    void executions(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        SandboxId sandbox = sandbox(exchange);
        ContextId context = context(exchange);
        if (contexts.list(caller, sandbox).stream()
                .noneMatch(seen -> seen.context().id().equals(context))) {
            throw new AtollException(
                    ErrorCode.CONTEXT_NOT_FOUND,
                    "context: " + context + " was not found in sandbox " + sandbox,
                    "There is none of that id, or it was closed.",
                    "GET /v1/executions?context_id= lists the executions of a closed one.");
        }
        var query = new ExecutionQuery(
                Optional.of(sandbox), Optional.of(context), Paging.running(exchange), Paging.of(exchange));
        exchange.json(200, Wire.Items.of(executions.list(caller, query).map(Wire.Execution::of)));
    }

    private static SandboxId sandbox(Exchange exchange) {
        return SandboxId.parse(exchange.path("sandbox_id"));
    }

    private static ContextId context(Exchange exchange) {
        return ContextId.parse(exchange.path("context_id"));
    }
}
