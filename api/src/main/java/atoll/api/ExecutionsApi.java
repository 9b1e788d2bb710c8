package atoll.api;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ExecutionId;
import atoll.core.execution.ExecutionQuery;
import atoll.core.execution.Executions;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.Locale;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** {@code /v1/executions}: what runs and what ran. */
final class ExecutionsApi {
    private final Executions executions;

    ExecutionsApi(Executions executions) {
        this.executions = executions;
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var query = new ExecutionQuery(
                Optional.ofNullable(exchange.query("sandbox_id")).map(text -> Ids.sandbox("sandbox_id", text)),
                Optional.ofNullable(exchange.query("context_id")).map(text -> Ids.context("context_id", text)),
                Paging.running(exchange),
                Paging.of(exchange));
        exchange.json(200, Wire.Items.of(executions.list(caller, query).map(Wire.Execution::of)));
    }

    void get(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, Wire.Execution.of(executions.get(caller, id(exchange))));
    }

    void interrupt(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        ExecutionId id = id(exchange);
        executions.interrupt(caller, id);
        exchange.json(200, Wire.Execution.of(executions.get(caller, id)));
    }

    /** The same events as of a streamed code_exec, from the first on. */
    void events(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        ExecutionEvents.write(exchange, executions.attach(caller, id(exchange)));
    }

    /** The raw bytes of one stream. */
    void output(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        StandardStream stream = stream(exchange.query("stream"));
        long offset = exchange.query("offset", 0, 0, Long.MAX_VALUE);
        boolean follow = exchange.query("follow", false);
        try (OutputReader reader = executions.read(caller, id(exchange), stream, offset, follow)) {
            RawOutput.write(exchange, reader, follow);
        }
    }

    private static ExecutionId id(Exchange exchange) {
        return ExecutionId.parse(exchange.path("execution_id"));
    }

    private static StandardStream stream(@Nullable String name) {
        String wanted = name == null ? "stdout" : name.toLowerCase(Locale.ROOT);
        for (StandardStream stream : StandardStream.values()) {
            if (stream.text().equals(wanted)) {
                return stream;
            }
        }
        throw AtollException.invalid(
                "stream: \"%s\" (expected: stdout or stderr)".formatted(wanted), "Correct the query parameter.");
    }
}
