package atoll.api;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.Page;
import atoll.core.PageRequest;
import atoll.core.SandboxId;
import atoll.core.execution.ExecutionQuery;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.Executions;
import atoll.core.execution.ExitReason;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.http.Exchange;
import java.io.IOException;
import java.time.Instant;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** {@code /v1/executions}: what runs and what ran. */
final class ExecutionsApi {
    /** How many executions a notebook has unless it is told. */
    private static final int NOTEBOOK_CELLS = 500;

    private final Executions executions;

    ExecutionsApi(Executions executions) {
        this.executions = executions;
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var statuses = Statuses.of(exchange);
        var query = new ExecutionQuery(
                sandbox(exchange),
                context(exchange),
                statuses.running(),
                new ExecutionQuery.Span(time(exchange, "from"), time(exchange, "until")),
                new ExecutionQuery.Wanted(
                        Paging.searched(exchange),
                        Optional.ofNullable(exchange.query("template")),
                        Optional.ofNullable(exchange.query("language")).map(Language::parse),
                        statuses.reasons()),
                Paging.of(exchange));
        exchange.json(200, Wire.Items.of(executions.list(caller, query).map(Wire.Execution::of)));
    }

    private static Optional<SandboxId> sandbox(Exchange exchange) {
        return Optional.ofNullable(exchange.query("sandbox_id")).map(text -> Ids.sandbox("sandbox_id", text));
    }

    private static Optional<ContextId> context(Exchange exchange) {
        return Optional.ofNullable(exchange.query("context_id")).map(text -> Ids.context("context_id", text));
    }

    private static Optional<Instant> time(Exchange exchange, String name) {
        return Optional.ofNullable(exchange.query(name)).map(text -> Times.parse(name, text));
    }

    /** The query parameters {@code state} and {@code status}. */
    private record Statuses(Optional<Boolean> running, Set<ExitReason> reasons) {
        static Statuses of(Exchange exchange) {
            Optional<Boolean> running = Paging.running(exchange);
            String status = exchange.query("status");
            if (status == null) {
                return new Statuses(running, Set.of());
            }
            if (running.isPresent()) {
                throw AtollException.invalid("state and status (expected: one of both)", "Leave state out.");
            }
            return switch (status) {
                case "running" -> new Statuses(Optional.of(true), Set.of());
                case "ended" -> new Statuses(Optional.of(false), Set.of());
                default -> new Statuses(Optional.of(false), reasons(status));
            };
        }

        private static Set<ExitReason> reasons(String words) {
            var reasons = EnumSet.noneOf(ExitReason.class);
            for (String word : words.split(",", -1)) {
                reasons.add(Choices.of("status", word, ExitReason.values(), ExitReason::text));
            }
            return reasons;
        }
    }

    /** The newest of a sandbox, or of one of its interpreters, in the order in which they ran. */
    void notebook(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        SandboxId sandbox = sandbox(exchange)
                .orElseThrow(() -> AtollException.invalid(
                        "sandbox_id is missing (expected: the sandbox whose executions are wanted)",
                        "Send ?sandbox_id=."));
        Optional<ContextId> context = context(exchange);
        long most = exchange.query("limit", NOTEBOOK_CELLS, 1, PageRequest.MAX_LIMIT);
        var query = new ExecutionQuery(
                Optional.of(sandbox), context, Optional.empty(), new PageRequest((int) most, Optional.empty()));
        Page<ExecutionRecord> page = executions.list(caller, query);
        if (page.items().isEmpty()) {
            throw new AtollException(
                    ErrorCode.EXECUTION_NOT_FOUND,
                    "no execution of " + context.map(ContextId::toString).orElse(sandbox.toString()) + " is on record",
                    "Nothing has run there, there is none of that id in this project, or the records were removed by"
                            + " retention.",
                    "GET /v1/executions lists those that are there.");
        }
        List<ExecutionRecord> ran = page.items().reversed();
        exchange.responseHeader("Content-Disposition", "attachment; filename=\"" + sandbox + ".ipynb\"");
        Notebook.write(
                exchange.stream(200, "application/x-ipynb+json"),
                Notebook.Origin.of(sandbox, context, page.next().isEmpty()),
                mainLanguage(ran),
                ran.stream().map(ExecutionRecord::id).toList(),
                id -> found(caller, id));
    }

    /** That of most; the first one's where there are as many of another. */
    private static Language mainLanguage(List<ExecutionRecord> executions) {
        var counts = new LinkedHashMap<Language, Integer>();
        executions.forEach(execution -> counts.merge(execution.language(), 1, Integer::sum));
        Language main = executions.getFirst().language();
        for (Map.Entry<Language, Integer> count : counts.entrySet()) {
            if (count.getValue() > counts.getOrDefault(main, 0)) {
                main = count.getKey();
            }
        }
        return main;
    }

    private Optional<ExecutionRecord> found(Caller caller, ExecutionId id) {
        try {
            return Optional.of(executions.get(caller, id));
        } catch (AtollException e) {
            if (e.code() == ErrorCode.EXECUTION_NOT_FOUND) {
                return Optional.empty();
            }
            throw e;
        }
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
