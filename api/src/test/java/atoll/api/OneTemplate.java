package atoll.api;

import atoll.core.AtollException;
import atoll.core.BuildId;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.SandboxId;
import atoll.core.template.Build;
import atoll.core.template.BuildLog;
import atoll.core.template.BuildSecrets;
import atoll.core.template.Template;
import atoll.core.template.TemplateDefinition;
import atoll.core.template.TemplateDraft;
import atoll.core.template.TemplateUsage;
import atoll.core.template.Templates;
import java.io.InputStream;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;

/** A template that can be looked at. All else is done over the real core. */
record OneTemplate(Template template) implements Templates {
    @Override
    public List<Template> list(Caller caller) {
        return List.of(template);
    }

    @Override
    public Template get(Caller caller, String id) {
        if (!id.equals(template.id())) {
            throw new AtollException(
                    ErrorCode.TEMPLATE_NOT_FOUND, "There is no template \"" + id + "\".", "", "Use python.");
        }
        return template;
    }

    @Override
    public List<Summary> summaries(Caller caller) {
        return List.of(new Summary(
                template,
                true,
                true,
                1,
                Optional.of("a".repeat(64)),
                BuildState.READY,
                Optional.empty(),
                TemplateUsage.NONE,
                Instant.EPOCH,
                Instant.EPOCH));
    }

    @Override
    public Detail detail(Caller caller, String id, Optional<Integer> version) {
        assert get(caller, id).equals(template);
        return new Detail(
                summaries(caller).getFirst(),
                new TemplateDraft().image(template.image()).definition());
    }

    private static UnsupportedOperationException no() {
        return new UnsupportedOperationException("see TemplatesApiTest");
    }

    @Override
    public Detail create(Caller caller, String id, TemplateDefinition definition) {
        throw no();
    }

    @Override
    public Detail update(Caller caller, String id, Consumer<TemplateDraft> changes) {
        throw no();
    }

    @Override
    public void delete(Caller caller, String id) {
        throw no();
    }

    @Override
    public Detail duplicate(Caller caller, String id, String newId, Optional<String> name) {
        throw no();
    }

    @Override
    public Detail setDefault(Caller caller, String id) {
        throw no();
    }

    @Override
    public List<Version> versions(Caller caller, String id) {
        throw no();
    }

    @Override
    public Detail putContext(Caller caller, String id, InputStream tar) {
        throw no();
    }

    @Override
    public String dockerfile(Caller caller, String id, Optional<Integer> version) {
        throw no();
    }

    @Override
    public Detail saveSandbox(Caller caller, SandboxId sandbox, String newId, Optional<String> name) {
        throw no();
    }

    @Override
    public Build build(Caller caller, String id, Optional<Integer> version, boolean noCache, BuildSecrets secrets) {
        throw no();
    }

    @Override
    public List<Build> builds(Caller caller, String id) {
        throw no();
    }

    @Override
    public Build build(Caller caller, String id, BuildId build) {
        throw no();
    }

    @Override
    public Build cancel(Caller caller, String id, BuildId build) {
        throw no();
    }

    @Override
    public BuildLog log(Caller caller, String id, BuildId build, boolean follow) {
        throw no();
    }
}
