package atoll.ui;

import atoll.core.Atoll;
import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ExecutionId;
import atoll.core.PageRequest;
import atoll.core.SandboxId;
import atoll.core.execution.CodeExecRequest;
import atoll.core.execution.ExecutionError;
import atoll.core.execution.ExecutionHandle;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionQuery;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExitReason;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** What ran: the history, and each execution with its code, its output, what it displayed and what can be done with it. */
public final class ExecutionsPage implements Page {
    private static final String HOME = "/ui/executions";
    private static final String LIVE = "/ui/live/executions";
    private static final int PAGE_SIZE = 50;
    private static final int SEARCH_STEP = 200;
    private static final int MOST_SEARCHED = 2000;
    private static final int SHOWN_CODE = 120;

    private final Atoll atoll;

    ExecutionsPage(Atoll atoll) {
        this.atoll = atoll;
    }

    /** One line of the history; {@code output} is the first line of what it said. */
    public record Row(
            String id,
            String code,
            String output,
            String language,
            String sandbox,
            String state,
            String stateClass,
            String duration,
            String createdAt) {}

    /** What is asked for; empty where all are. */
    public record Filter(String text, String sandbox, String state) {
        boolean isEmpty() {
            return text.isEmpty() && sandbox.isEmpty() && state.isEmpty();
        }

        boolean takes(ExecutionRecord execution) {
            return text.isEmpty()
                    || holds(execution.code())
                    || execution.id().toString().equals(text)
                    || execution.outcome().map(o -> holds(o.output().text())).orElse(false);
        }

        private boolean holds(String where) {
            return where.toLowerCase(Locale.ROOT).contains(text.toLowerCase(Locale.ROOT));
        }
    }

    /** What was found; {@code next} is where to go on. */
    private record Found(List<ExecutionRecord> items, Optional<String> next) {}

    /** The history; {@code older} is the address of the next page, or empty. */
    public record Model(List<Row> rows, Filter filter, boolean filtered, String older, boolean isLive) {}

    /**
     * One execution.
     *
     * @param output what it printed
     * @param sandboxLives whether running it again goes on in the same sandbox
     */
    public record Detail(
            String id,
            Row row,
            String context,
            String code,
            String codeCut,
            String output,
            String outputCut,
            String detail,
            String exit,
            boolean running,
            boolean stateLost,
            boolean sandboxLives,
            boolean mayExecute) {}

    @Override
    public void addTo(Site site) {
        site.page(HOME, visit -> {
                    Model model = model(visit);
                    View view = View.page(Nav.EXECUTIONS, "Executions", "executions/page")
                            .with("model", model);
                    // Only the newest change, and a search is not cheap enough to be done twice a second.
                    return model.isLive() ? view.live(LIVE + suffix(visit.rawQuery())) : view;
                })
                .live(
                        LIVE,
                        visit -> Map.of("list", View.fragment("executions/list").with("model", model(visit))))
                .page(
                        HOME + "/{id}",
                        visit -> View.page(Nav.EXECUTIONS, "Execution", "executions/detail")
                                .with("model", detail(visit))
                                .script("results.js")
                                .script("notebook.js")
                                .script("execution.js")
                                .allowInlineStyles())
                .action(HOME + "/{id}/interrupt", (visit, _) -> {
                    ExecutionId id = ExecutionId.parse(visit.path("id"));
                    atoll.executions().interrupt(visit.caller(), id);
                    return Outcome.to(HOME + "/" + id).saying("Interrupted");
                })
                .action(HOME + "/{id}/again", (visit, _) -> again(visit));
    }

    private static String suffix(String query) {
        return query.isEmpty() ? "" : "?" + query;
    }

    private static String given(Visit visit, String name) {
        String text = visit.query(name);
        return text == null ? "" : text.strip();
    }

    private Model model(Visit visit) {
        var filter = new Filter(given(visit, "q"), given(visit, "sandbox"), given(visit, "state"));
        Optional<String> cursor = Optional.of(given(visit, "cursor")).filter(text -> !text.isEmpty());
        Found found = find(visit.caller(), filter, cursor);
        return new Model(
                found.items().stream().map(ExecutionsPage::row).toList(),
                filter,
                !filter.isEmpty(),
                found.next()
                        .map(next -> HOME + "?cursor=" + encoded(next) + "&q=" + encoded(filter.text()) + "&sandbox="
                                + encoded(filter.sandbox()) + "&state=" + encoded(filter.state()))
                        .orElse(""),
                cursor.isEmpty() && filter.text().isEmpty());
    }

    /** A page's worth. A search looks through so many at once and no more: people go on from there. */
    private Found find(Caller caller, Filter filter, Optional<String> from) {
        boolean searches = !filter.text().isEmpty();
        Optional<SandboxId> sandbox =
                Optional.of(filter.sandbox()).filter(text -> !text.isEmpty()).map(SandboxId::parse);
        Optional<Boolean> running = running(filter.state());
        List<ExecutionRecord> found = new ArrayList<>();
        Optional<String> cursor = from;
        int looked = 0;
        do {
            var page = atoll.executions()
                    .list(
                            caller,
                            new ExecutionQuery(
                                    sandbox,
                                    Optional.empty(),
                                    running,
                                    new PageRequest(searches ? SEARCH_STEP : PAGE_SIZE, cursor)));
            page.items().stream().filter(filter::takes).forEach(found::add);
            looked += page.items().size();
            cursor = page.next();
        } while (cursor.isPresent() && found.size() < PAGE_SIZE && looked < MOST_SEARCHED);
        return new Found(found, cursor);
    }

    private static Optional<Boolean> running(String state) {
        return switch (state) {
            case "" -> Optional.empty();
            case "running" -> Optional.of(true);
            case "ended" -> Optional.of(false);
            default ->
                throw AtollException.invalid(
                        "state: \"" + start(state) + "\" (expected: running or ended)", "Choose one of them.");
        };
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    private Detail detail(Visit visit) {
        ExecutionRecord execution = atoll.executions().get(visit.caller(), ExecutionId.parse(visit.path("id")));
        Optional<ExecutionOutcome> outcome = execution.outcome();
        return new Detail(
                execution.id().toString(),
                row(execution),
                execution.contextId().toString(),
                execution.code(),
                execution.code().getBytes(StandardCharsets.UTF_8).length < execution.codeBytes()
                        ? "The beginning of " + Format.bytes(execution.codeBytes())
                        : "",
                outcome.map(ExecutionsPage::printed).orElse(""),
                outcome.filter(ExecutionOutcome::truncated)
                        .map(o -> "Not all of it is kept here: it printed "
                                + Format.bytes(
                                        o.stdout().totalBytes() + o.stderr().totalBytes()))
                        .orElse(""),
                outcome.map(ExecutionOutcome::detail).orElse(""),
                outcome.map(ExecutionsPage::exit).orElse(""),
                outcome.isEmpty(),
                outcome.map(o -> !o.stateKept()).orElse(false),
                sandbox(visit, execution.sandboxId())
                        .map(sandbox -> sandbox.state() != SandboxState.ENDED)
                        .orElse(false),
                visit.mayExecute());
    }

    private Optional<Sandbox> sandbox(Visit visit, SandboxId id) {
        try {
            return Optional.of(atoll.sandboxes().get(visit.caller(), id));
        } catch (AtollException _) {
            return Optional.empty();
        }
    }

    /** What a terminal would have shown; without the values, where these follow as they look best. */
    private static String printed(ExecutionOutcome outcome) {
        if (outcome.results().isEmpty()) {
            return outcome.output().text();
        }
        return Stream.of(
                        outcome.stdout().text(),
                        outcome.stderr().text(),
                        outcome.error().map(ExecutionError::traceback).orElse(""))
                .filter(text -> !text.isEmpty())
                .map(text -> text.endsWith("\n") ? text : text + "\n")
                .collect(Collectors.joining())
                .stripTrailing();
    }

    private static String exit(ExecutionOutcome outcome) {
        if (outcome.exitCode().isPresent()) {
            return "exit code " + outcome.exitCode().getAsInt();
        }
        return outcome.signal().isPresent() ? "signal " + outcome.signal().getAsInt() : "";
    }

    /** Runs the same code where it ran; in a new sandbox of the same template where that is gone. */
    private Outcome again(Visit visit) throws InterruptedException {
        ExecutionRecord before = atoll.executions().get(visit.caller(), ExecutionId.parse(visit.path("id")));
        if (before.code().getBytes(StandardCharsets.UTF_8).length < before.codeBytes()) {
            throw AtollException.invalid(
                    "only the beginning of the code is on record, of " + before.codeBytes() + " bytes",
                    "Send the code again by the API.");
        }
        Optional<Sandbox> sandbox = sandbox(visit, before.sandboxId());
        CodeExecRequest request = CodeExecRequest.of(before.code());
        if (sandbox.isPresent() && sandbox.get().state() != SandboxState.ENDED) {
            request = request.in(before.sandboxId()).in(before.contextId());
        } else {
            request = request.withLanguage(before.language().text());
            if (sandbox.isPresent()) {
                request = request.withTemplate(sandbox.get().template());
            }
        }
        try (ExecutionHandle handle = atoll.codeExecution().startInBackground(visit.caller(), request)) {
            return Outcome.to(HOME + "/" + handle.executionId());
        }
    }

    private static Row row(ExecutionRecord execution) {
        Optional<ExecutionOutcome> outcome = execution.outcome();
        return new Row(
                execution.id().toString(),
                firstLine(execution.code()),
                outcome.map(o -> firstLine(o.output().text())).orElse(""),
                execution.language().text(),
                execution.sandboxId().toString(),
                outcome.map(o -> words(o.exitReason())).orElse("Running"),
                outcome.map(o -> color(o.exitReason())).orElse("info"),
                outcome.map(o -> Format.duration(o.duration())).orElse("—"),
                Format.time(execution.createdAt()));
    }

    private static String firstLine(String text) {
        return start(text.lines()
                .filter(line -> !line.isBlank())
                .findFirst()
                .orElse("")
                .strip());
    }

    private static String start(String text) {
        int characters = text.codePointCount(0, text.length());
        return characters <= SHOWN_CODE ? text : text.substring(0, text.offsetByCodePoints(0, SHOWN_CODE)) + "…";
    }

    private static String words(ExitReason reason) {
        return switch (reason) {
            case COMPLETED -> "Completed";
            case ERROR -> "Error";
            case EXITED -> "Exited";
            case TIMEOUT -> "Timed out";
            case INTERRUPTED -> "Interrupted";
            case OUT_OF_MEMORY -> "Out of memory";
            case KERNEL_DIED -> "Interpreter died";
            case SANDBOX_ENDED -> "Sandbox ended";
            case LOST -> "Lost";
        };
    }

    private static String color(ExitReason reason) {
        return switch (reason) {
            case COMPLETED -> "good";
            case EXITED -> "";
            case TIMEOUT, INTERRUPTED -> "warn";
            case ERROR, OUT_OF_MEMORY, KERNEL_DIED, SANDBOX_ENDED, LOST -> "bad";
        };
    }
}
