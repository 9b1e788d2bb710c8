package atoll.ui;

import atoll.core.Atoll;
import atoll.core.Caller;
import atoll.core.ServerStatus;
import atoll.core.template.Template;
import atoll.core.template.Templates;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;

/** The first page: what Atoll is for, how it does, and the templates that sandboxes are made of. */
public final class CodeExecutionPage implements Page {
    private static final String LIVE = "/ui/live/code-execution";
    private static final int SHOWN_PACKAGES = 8;

    private final Atoll atoll;
    private final Supplier<Optional<Duration>> coldStart;

    CodeExecutionPage(Atoll atoll, UiSettings settings) {
        this.atoll = atoll;
        this.coldStart = settings.coldStart();
    }

    /** What counts live. */
    public record Totals(String executions, String activeSessions, String coldStart) {}

    /**
     * One template.
     *
     * @param packages the first few; {@code more} says how many follow
     * @param buildPath of the newest build, if there was one
     */
    public record Card(
            String id,
            String name,
            String description,
            String image,
            List<String> packages,
            int more,
            String memory,
            String cpu,
            String timeout,
            String executions,
            String lastUsed,
            boolean isDefault,
            boolean builtIn,
            String languages,
            String state,
            String stateClass,
            String buildPath) {}

    public record Model(Totals totals, List<Card> cards, String formToken, boolean mayChange) {}

    @Override
    public void addTo(Site site) {
        site.page(
                        "/ui/",
                        visit -> View.page(Nav.CODE_EXECUTION, "Code Execution", "code_execution")
                                .with("model", model(visit))
                                .live(LIVE))
                .live(LIVE, visit -> {
                    Model now = model(visit);
                    return Map.of(
                            "totals", View.fragment("code_execution/totals").with("totals", now.totals()),
                            "cold-start",
                                    View.fragment("code_execution/cold_start").with("totals", now.totals()),
                            "templates", View.fragment("code_execution/cards").with("model", now));
                });
    }

    private Model model(Visit visit) {
        Caller caller = visit.caller();
        List<Templates.Summary> all = atoll.templates().summaries(caller);
        return new Model(
                totals(all), all.stream().map(CodeExecutionPage::card).toList(), visit.formToken(), visit.mayExecute());
    }

    private Totals totals(List<Templates.Summary> all) {
        long executions =
                all.stream().mapToLong(summary -> summary.usage().executions()).sum();
        ServerStatus status = atoll.status();
        return new Totals(
                Format.count(executions),
                Format.count(status.liveSandboxes() - status.pausedSandboxes()),
                coldStart.get().map(Format::duration).orElse("–"));
    }

    /** What people chose an image for comes first; what makes it a Debian fills the rest. */
    private static final Comparator<Map.Entry<String, Map<String, String>>> KINDS =
            Comparator.<Map.Entry<String, Map<String, String>>, Boolean>comparing(
                            kind -> kind.getKey().equals("debian"))
                    .thenComparing(Map.Entry.comparingByKey());

    private static Card card(Templates.Summary summary) {
        Template template = summary.template();
        List<String> packages = template.packages().entrySet().stream()
                .sorted(KINDS)
                .flatMap(kind -> kind.getValue().entrySet().stream()
                        .sorted(Map.Entry.comparingByKey())
                        .map(one -> one.getValue().isEmpty() ? one.getKey() : one.getKey() + " " + one.getValue()))
                .toList();
        return new Card(
                template.id(),
                template.name().isEmpty() ? template.id() : template.name(),
                template.description(),
                template.image().isEmpty() ? "Dockerfile" : template.image(),
                packages.stream().limit(SHOWN_PACKAGES).toList(),
                Math.max(0, packages.size() - SHOWN_PACKAGES),
                Format.bytes(template.limits().memoryBytes()),
                Format.cpu(template.limits().cpuMillis()),
                Format.duration(template.timeout()),
                Format.count(summary.usage().executions()),
                Format.time(summary.usage().lastUsedAt(), "never"),
                summary.isDefault(),
                summary.builtIn(),
                String.join(
                        ", ",
                        template.languages().stream()
                                .map(language -> language.text())
                                .toList()),
                words(summary.build()),
                color(summary.build()),
                summary.lastBuild()
                        .map(build -> TemplatePages.buildPath(template.id(), build.id()))
                        .orElse(""));
    }

    private static String words(Templates.BuildState state) {
        return switch (state) {
            case NONE -> "Not built";
            case QUEUED -> "Queued";
            case BUILDING -> "Building";
            case READY -> "Ready";
            case FAILED -> "Build failed";
            case CANCELLED -> "Cancelled";
        };
    }

    private static String color(Templates.BuildState state) {
        return switch (state) {
            case NONE, CANCELLED -> "";
            case QUEUED, BUILDING -> "info";
            case READY -> "good";
            case FAILED -> "bad";
        };
    }
}
