package atoll.ui;

import atoll.core.Atoll;
import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.PageRequest;
import atoll.core.SnapshotId;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.IfExists;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.OnTimeout;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Term;
import atoll.core.stats.Changes.Topic;
import atoll.core.template.LimitChanges;
import atoll.core.template.Template;
import atoll.core.text.SearchText;
import atoll.http.Form;
import java.math.BigDecimal;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** All sandboxes, those that have ended with the reason; new ones are made here. */
public final class SandboxesPage implements Page {
    static final String PATH = "/ui/sandboxes";
    private static final String LIVE = "/ui/live/sandboxes";
    private static final int SHOWN = 100;
    private static final long MIB = 1 << 20;
    private static final Set<SandboxState> ALIVE = EnumSet.complementOf(EnumSet.of(SandboxState.ENDED));

    private final Atoll atoll;

    SandboxesPage(Atoll atoll) {
        this.atoll = atoll;
    }

    /**
     * One sandbox in the list.
     *
     * @param reason why it ended, or what will end it; may be empty
     * @param from the sandbox that it is a fork of; empty if of none
     */
    public record Row(
            String id,
            String name,
            String template,
            String state,
            String stateClass,
            String reason,
            String reasonClass,
            String detail,
            String from,
            String memory,
            String cpu,
            String createdAt,
            String lastActiveAt,
            boolean ended,
            boolean paused,
            boolean running) {}

    /**
     * What is looked for.
     *
     * @param state a state, {@code alive}, or empty for all
     */
    public record Filter(String text, String state, String template) {
        public boolean isEmpty() {
            return text.isEmpty() && state.isEmpty() && template.isEmpty();
        }
    }

    /**
     * The list.
     *
     * @param next the address of the page after this one; empty at the end
     * @param stream where it is followed
     */
    public record Rows(
            List<Row> rows, Filter filter, String next, String stream, String formToken, boolean mayChange) {}

    public record Model(Rows list, List<String> states, List<String> templates) {}

    @Override
    public void addTo(Site site) {
        site.page(PATH, visit -> {
                    Model model = model(visit);
                    return View.page(Nav.SANDBOXES, "Sandboxes", "sandboxes")
                            .with("model", model)
                            .live(model.list().stream())
                            .script("search.js");
                })
                .live(
                        LIVE,
                        EnumSet.of(Topic.SANDBOXES),
                        visit -> Map.of(
                                "list", View.fragment("sandboxes/list").with("model", rows(visit, filter(visit)))))
                .action(PATH, this::create);
    }

    private Model model(Visit visit) {
        List<String> states = new ArrayList<>();
        states.add("alive");
        for (SandboxState state : SandboxState.values()) {
            states.add(state.text());
        }
        return new Model(
                rows(visit, filter(visit)),
                states,
                atoll.templates().list(visit.caller()).stream()
                        .map(Template::id)
                        .sorted()
                        .toList());
    }

    private static Filter filter(Visit visit) {
        return new Filter(given(visit.query("q")), given(visit.query("state")), given(visit.query("template")));
    }

    private static String given(@Nullable String text) {
        return text == null ? "" : text.strip();
    }

    private static Set<SandboxState> states(String name) {
        if (name.isEmpty()) {
            return Set.of();
        }
        if (name.equals("alive")) {
            return ALIVE;
        }
        return Arrays.stream(SandboxState.values())
                .filter(state -> state.text().equals(name))
                .findFirst()
                .map(Set::of)
                .orElseThrow(() -> AtollException.invalid(
                        "state: \"" + name + "\" (expected: one of the list)", "Choose a state of the list."));
    }

    private Rows rows(Visit visit, Filter filter) {
        Optional<String> template = Optional.of(filter.template()).filter(id -> !id.isEmpty());
        Set<SandboxState> states = states(filter.state());
        Optional<String> cursor = Optional.ofNullable(visit.query("cursor")).filter(text -> !text.isEmpty());
        Optional<SearchText> text =
                Optional.of(filter.text()).filter(word -> !word.isEmpty()).map(SearchText::new);
        var query =
                new SandboxQuery(states, template, Optional.empty(), Map.of(), text, new PageRequest(SHOWN, cursor));
        atoll.core.Page<Sandbox> page = atoll.sandboxes().list(visit.caller(), query);
        String next = page.next()
                .map(from -> PATH + "?q=" + escaped(filter.text()) + "&state=" + escaped(filter.state()) + "&template="
                        + escaped(filter.template()) + "&cursor=" + escaped(from))
                .orElse("");
        return new Rows(
                page.items().stream().map(SandboxesPage::row).toList(),
                filter,
                next,
                visit.rawQuery().isEmpty() ? LIVE : LIVE + "?" + visit.rawQuery(),
                visit.formToken(),
                visit.mayExecute());
    }

    private static String escaped(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    static Row row(Sandbox sandbox) {
        return new Row(
                sandbox.id().toString(),
                sandbox.name().orElse(""),
                sandbox.template(),
                sandbox.state().text(),
                color(sandbox.state()),
                sandbox.end().map(end -> words(end.reason())).orElse(""),
                sandbox.end().map(end -> color(end.reason())).orElse(""),
                sandbox.end().map(Sandbox.End::detail).orElse(""),
                sandbox.origin()
                        .flatMap(Sandbox.Origin::sandbox)
                        .map(Object::toString)
                        .orElse(""),
                Format.bytes(sandbox.limits().memoryBytes()),
                Format.cpu(sandbox.limits().cpuMillis()),
                Format.time(sandbox.createdAt()),
                Format.time(sandbox.end().map(Sandbox.End::at).orElse(sandbox.lastActiveAt())),
                sandbox.state() == SandboxState.ENDED,
                sandbox.state() == SandboxState.PAUSED,
                sandbox.state() == SandboxState.RUNNING);
    }

    static String color(SandboxState state) {
        return switch (state) {
            case RUNNING -> "good";
            case PAUSED -> "info";
            case CREATING, PAUSING, RESUMING -> "warn";
            case ENDED -> "";
        };
    }

    static String color(EndReason reason) {
        return switch (reason) {
            case DELETED, MAIN_EXITED, EXPIRED, IDLE -> "";
            case OUT_OF_MEMORY, CRASHED, START_FAILED, LOST -> "bad";
        };
    }

    static String words(EndReason reason) {
        return switch (reason) {
            case DELETED -> "Killed by a user";
            case OUT_OF_MEMORY -> "Out of memory";
            case MAIN_EXITED -> "Main process ended";
            case CRASHED -> "Crashed";
            case START_FAILED -> "Did not start";
            case EXPIRED -> "Timeout: its time was up";
            case IDLE -> "Timeout: not used";
            case LOST -> "Lost by the node";
        };
    }

    private Outcome create(Visit visit, Form form) throws InterruptedException {
        Caller caller = visit.caller();
        Optional<SnapshotId> snapshot = form.given("snapshot").map(SnapshotId::parse);
        var request = new CreateSandbox(
                snapshot.isPresent() ? Optional.empty() : form.given("template"),
                Optional.empty(),
                Map.of(),
                Map.of(),
                new LimitChanges(
                        form.given("memory")
                                .map(text -> OptionalLong.of(number("memory", text)
                                        .multiply(BigDecimal.valueOf(MIB))
                                        .longValue()))
                                .orElse(OptionalLong.empty()),
                        form.given("cpu")
                                .map(text -> OptionalInt.of(number("cpu", text)
                                        .multiply(BigDecimal.valueOf(1000))
                                        .intValue()))
                                .orElse(OptionalInt.empty()),
                        OptionalLong.empty(),
                        OptionalInt.empty(),
                        OptionalInt.empty()),
                Optional.empty(),
                form.given("name"),
                IfExists.FAIL,
                new LifecycleChanges(
                        form.given("lifetime")
                                .map(text -> Term.of(Duration.ofSeconds(number("lifetime", text)
                                        .multiply(BigDecimal.valueOf(60))
                                        .longValue()))),
                        Optional.empty(),
                        form.given("on_timeout").map(word -> word.equals("kill") ? OnTimeout.KILL : OnTimeout.PAUSE),
                        Optional.empty()),
                snapshot,
                Optional.empty());
        Sandbox made = atoll.sandboxes().create(caller, request);
        return Outcome.to(SandboxPage.path(made.id())).saying("Sandbox made");
    }

    static BigDecimal number(String field, String text) {
        try {
            BigDecimal value = new BigDecimal(text);
            // Beyond that no limit lies, and no number of bytes fits.
            if (value.signum() >= 0 && value.compareTo(BigDecimal.valueOf(1_000_000_000)) <= 0) {
                return value;
            }
        } catch (NumberFormatException _) {
            // Said below.
        }
        String shown = text.length() > 40 ? text.substring(0, 40) + "…" : text;
        throw AtollException.invalid(field + ": \"" + shown + "\" (expected: a number)", "Correct it.");
    }
}
