package atoll.api;

import atoll.core.Caller;
import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.CodeExecution;
import atoll.core.execution.ExecutionHandle;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.Optional;

/** {@code POST /v1/code_exec}: runs code and answers with its outcome, or with events while it runs. */
final class CodeExecApi {
    private final CodeExecution codeExecution;

    CodeExecApi(CodeExecution codeExecution) {
        this.codeExecution = codeExecution;
    }

    void codeExec(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        CodeExecArguments arguments = CodeExecArguments.byHttp(exchange.readJson());
        boolean stream = arguments.stream() || exchange.accepts("text/event-stream");
        CodeExecRequest request = arguments.request(Optional.ofNullable(exchange.header("Idempotency-Key")));
        ExecutionHandle handle = codeExecution.start(caller, request);
        if (stream) {
            ExecutionEvents.write(exchange, handle);
            return;
        }
        try (handle) {
            exchange.json(200, Wire.Outcome.of(handle.await()));
        }
    }
}
