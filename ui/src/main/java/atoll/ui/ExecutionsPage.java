package atoll.ui;

import atoll.core.Atoll;
import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ExecutionId;
import atoll.core.Language;
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
import atoll.core.stats.Changes.Topic;
import atoll.core.template.Template;
import atoll.core.text.SearchText;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeParseException;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** What ran: the history, and each execution with its code, its output, what it displayed and what can be done with it. */
public final class ExecutionsPage implements Page {
    private static final String HOME = "/ui/executions";
    private static final String LIVE = "/ui/live/executions";
    private static final int PAGE_SIZE = 50;
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

    /**
     * What is asked for; empty where all are.
     *
     * @param state running, ended, or why they ended
     * @param from a time of UTC as its input has it, {@code until} too
     */
    public record Filter(
            String text, String sandbox, String state, String template, String language, String from, String until) {
        boolean isEmpty() {
            return equals(new Filter("", "", "", "", "", "", ""));
        }

        /** For an address. */
        String query() {
            return Stream.of(
                            Map.entry("q", text),
                            Map.entry("sandbox", sandbox),
                            Map.entry("state", state),
                            Map.entry("template", template),
                            Map.entry("language", language),
                            Map.entry("from", from),
                            Map.entry("until", until))
                    .filter(one -> !one.getValue().isEmpty())
                    .map(one -> one.getKey() + "=" + encoded(one.getValue()))
                    .collect(Collectors.joining("&"));
        }
    }

    /** What may be chosen. */
    public record Choices(List<Map.Entry<String, String>> states, List<String> templates, List<String> languages) {}

    /**
     * The history.
     *
     * @param older the address of the next page, or empty
     * @param searches whether it was looked for one by one, so that there may be nothing in the next page
     * @param stream where it is followed; null where it is not
     */
    public record Model(
            List<Row> rows,
            Filter filter,
            boolean filtered,
            String older,
            boolean searches,
            @Nullable String stream,
            Choices choices) {
        public boolean isLive() {
            return stream != null;
        }
    }

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
                            .with("model", model)
                            .script("search.js");
                    return model.stream() == null ? view : view.live(model.stream());
                })
                .live(
                        LIVE,
                        EnumSet.of(Topic.EXECUTIONS),
                        visit -> Map.of("list", View.fragment("executions/list").with("model", model(visit))))
                .page(
                        HOME + "/{id}",
                        visit -> View.page(Nav.EXECUTIONS, "Execution", "executions/detail")
                                .with("model", detail(visit))
                                .script("results.js")
                                .script("execution.js")
                                .allowInlineStyles())
                .action(HOME + "/{id}/interrupt", (visit, _) -> {
                    ExecutionId id = ExecutionId.parse(visit.path("id"));
                    atoll.executions().interrupt(visit.caller(), id);
                    return Outcome.to(HOME + "/" + id).saying("Interrupted");
                })
                .action(HOME + "/{id}/again", (visit, _) -> again(visit));
    }

    private static String given(Visit visit, String name) {
        String text = visit.query(name);
        return text == null ? "" : text.strip();
    }

    private static Optional<String> some(String text) {
        return Optional.of(text).filter(one -> !one.isEmpty());
    }

    private Model model(Visit visit) {
        var filter = new Filter(
                given(visit, "q"),
                given(visit, "sandbox"),
                given(visit, "state"),
                given(visit, "template"),
                given(visit, "language"),
                given(visit, "from"),
                given(visit, "until"));
        Optional<String> cursor = some(given(visit, "cursor"));
        ExecutionQuery query = query(filter, cursor);
        boolean searches = !query.wanted().isAny();
        var found = find(visit.caller(), filter, query);
        // Only the newest change, and a search is not cheap enough to be done with every execution.
        boolean live = cursor.isEmpty() && !searches;
        String words = filter.query();
        return new Model(
                found.items().stream().map(ExecutionsPage::row).toList(),
                filter,
                !filter.isEmpty(),
                found.next()
                        .map(next -> HOME + "?cursor=" + encoded(next) + (words.isEmpty() ? "" : "&" + words))
                        .orElse(""),
                searches,
                live ? LIVE + (words.isEmpty() ? "" : "?" + words) : null,
                choices(visit));
    }

    private Choices choices(Visit visit) {
        List<Map.Entry<String, String>> states = new ArrayList<>();
        states.add(Map.entry("running", "Running"));
        states.add(Map.entry("ended", "Ended"));
        for (ExitReason reason : ExitReason.values()) {
            states.add(Map.entry(reason.text(), words(reason)));
        }
        return new Choices(
                states,
                atoll.templates().list(visit.caller()).stream()
                        .map(Template::id)
                        .sorted()
                        .toList(),
                Stream.of(Language.values()).map(Language::text).toList());
    }

    private static ExecutionQuery query(Filter filter, Optional<String> cursor) {
        Optional<Boolean> running = filter.state().isEmpty()
                ? Optional.empty()
                : Optional.of(filter.state().equals("running"));
        return new ExecutionQuery(
                some(filter.sandbox()).map(SandboxId::parse),
                Optional.empty(),
                running,
                new ExecutionQuery.Span(
                        some(filter.from()).map(text -> time("from", text)),
                        some(filter.until()).map(text -> time("until", text))),
                new ExecutionQuery.Wanted(
                        some(filter.text()).map(SearchText::new),
                        some(filter.template()),
                        some(filter.language()).map(Language::parse),
                        reasons(filter.state())),
                new PageRequest(PAGE_SIZE, cursor));
    }

    /** A page's worth; of what is an id, that one. */
    private atoll.core.Page<ExecutionRecord> find(Caller caller, Filter filter, ExecutionQuery query) {
        if (filter.text().startsWith(ExecutionId.PREFIX)) {
            try {
                return new atoll.core.Page<>(
                        List.of(atoll.executions()
                                .get(caller, ExecutionId.parse(filter.text()))
                                .listed()),
                        Optional.empty());
            } catch (AtollException _) {
                // It may stand in some code all the same.
            }
        }
        return atoll.executions().list(caller, query);
    }

    private static Set<ExitReason> reasons(String state) {
        return switch (state) {
            case "", "running", "ended" -> Set.of();
            default ->
                Stream.of(ExitReason.values())
                        .filter(reason -> reason.text().equals(state))
                        .findFirst()
                        .map(Set::of)
                        .orElseThrow(() -> AtollException.invalid(
                                "state: \"" + start(state) + "\" (expected: one of the list)", "Choose one of them."));
        };
    }

    private static Instant time(String name, String text) {
        try {
            return LocalDateTime.parse(text).toInstant(ZoneOffset.UTC);
        } catch (DateTimeParseException e) {
            throw AtollException.invalid(
                    name + ": \"" + start(text) + "\" (expected: a time such as 2026-12-31T23:59)", "Correct it.");
        }
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
