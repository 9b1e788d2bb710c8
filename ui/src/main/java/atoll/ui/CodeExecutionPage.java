package atoll.ui;

import atoll.core.Atoll;
import atoll.core.template.Templates;
import java.util.Map;

/** The first page: what Atoll is for, how it does, and what sandboxes are made of. */
public final class CodeExecutionPage implements Page {
    private static final String LIVE = "/ui/live/code-execution";

    private final Atoll atoll;

    CodeExecutionPage(Atoll atoll, UiSettings settings) {
        this.atoll = atoll;
        assert settings.port() >= 0;
    }

    /** What counts live. */
    public record Totals(long executions, int activeSessions) {}

    @Override
    public void addTo(Site site) {
        site.page(
                        "/ui/",
                        visit -> View.page(Nav.CODE_EXECUTION, "Code Execution", "code_execution")
                                .with("totals", totals(visit))
                                .live(LIVE))
                .live(
                        LIVE,
                        visit -> Map.of(
                                "totals", View.fragment("code_execution/totals").with("totals", totals(visit))));
    }

    private Totals totals(Visit visit) {
        long executions = atoll.templates().summaries(visit.caller()).stream()
                .mapToLong((Templates.Summary summary) -> summary.usage().executions())
                .sum();
        return new Totals(
                executions, atoll.status().liveSandboxes() - atoll.status().pausedSandboxes());
    }
}
