package atoll.ui;

import atoll.core.Atoll;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.PageRequest;
import atoll.core.SandboxId;
import atoll.core.execution.ExecutionRecord;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.template.Template;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/** Where people type code and run it, in a new sandbox or in one that is there. What runs is called by the page's script. */
public final class PlaygroundPage implements Page {
    private static final int SHOWN_SANDBOXES = 100;

    private final Atoll atoll;

    PlaygroundPage(Atoll atoll) {
        this.atoll = atoll;
    }

    /** A template; {@code languages} with commas, its own first. */
    public record Choice(String id, String name, String languages) {}

    /** A sandbox that can go on. */
    public record Going(String id, String words, String template, boolean chosen) {}

    /**
     * What the page begins with.
     *
     * @param template and {@code language} that are chosen at first; the language may be empty
     */
    public record Model(
            List<Choice> templates,
            List<Going> sandboxes,
            String template,
            String language,
            String code,
            boolean mayExecute) {}

    @Override
    public void addTo(Site site) {
        site.page(
                "/ui/playground",
                visit -> View.page(Nav.PLAYGROUND, "Playground", "playground/page")
                        .with("model", model(visit))
                        .script("results.js")
                        .script("playground.js")
                        .allowInlineStyles());
    }

    private Model model(Visit visit) {
        List<Template> templates = atoll.templates().list(visit.caller());
        Optional<ExecutionRecord> from =
                given(visit, "from").map(id -> atoll.executions().get(visit.caller(), ExecutionId.parse(id)));
        String wanted = given(visit, "sandbox")
                .or(() -> from.map(execution -> execution.sandboxId().toString()))
                .orElse("");
        var going = new ArrayList<>(atoll.sandboxes()
                .list(
                        visit.caller(),
                        new SandboxQuery(
                                Set.of(SandboxState.RUNNING, SandboxState.PAUSED),
                                Optional.empty(),
                                Optional.empty(),
                                Map.of(),
                                new PageRequest(SHOWN_SANDBOXES, Optional.empty())))
                .items());
        // It may be older than those of the list.
        if (!wanted.isEmpty()
                && going.stream().noneMatch(sandbox -> sandbox.id().toString().equals(wanted))) {
            Sandbox named = atoll.sandboxes().get(visit.caller(), SandboxId.parse(wanted));
            if (named.state() != SandboxState.ENDED) {
                going.addFirst(named);
            }
        }
        String template = going.stream()
                .filter(sandbox -> sandbox.id().toString().equals(wanted))
                .map(Sandbox::template)
                .findFirst()
                .or(() -> given(visit, "template"))
                .or(() -> from.flatMap(execution -> withLanguage(templates, execution.language())))
                .orElseGet(() -> templates.isEmpty() ? "" : templates.getFirst().id());
        return new Model(
                templates.stream().map(PlaygroundPage::choice).toList(),
                going.stream().map(sandbox -> going(sandbox, wanted)).toList(),
                template,
                from.map(execution -> execution.language().text()).orElse(""),
                from.map(ExecutionRecord::code).orElse(""),
                visit.mayExecute());
    }

    private static Optional<String> given(Visit visit, String name) {
        return Optional.ofNullable(visit.query(name)).filter(text -> !text.isEmpty());
    }

    private static Optional<String> withLanguage(List<Template> templates, Language language) {
        return templates.stream()
                .filter(template -> template.languages().contains(language))
                .map(Template::id)
                .findFirst();
    }

    private static Choice choice(Template template) {
        var languages = new ArrayList<>(template.languages());
        template.defaultLanguage().ifPresent(own -> {
            languages.remove(own);
            languages.addFirst(own);
        });
        return new Choice(
                template.id(),
                template.name().isEmpty() ? template.id() : template.name(),
                languages.stream().map(Language::text).collect(Collectors.joining(",")));
    }

    private static Going going(Sandbox sandbox, String wanted) {
        String id = sandbox.id().toString();
        String paused = sandbox.state() == SandboxState.PAUSED ? " · paused, resumes" : "";
        return new Going(
                id,
                sandbox.name().orElse(id) + " · " + sandbox.template() + paused,
                sandbox.template(),
                id.equals(wanted));
    }
}
