package atoll.core.template;

import atoll.core.Language;
import atoll.core.sandbox.LifecycleChanges;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/** A definition while it is being written, field by field; checked as a whole by {@link #definition}. Not for several threads. */
public final class TemplateDraft {
    private String name = "";
    private String description = "";
    private String image = "";
    private Optional<String> recipe = Optional.empty();
    private String dockerfile = "";
    private Packages packages = Packages.NONE;
    private List<TemplateFile> files = List.of();
    private List<String> commands = List.of();
    private Optional<BuildContext> context = Optional.empty();
    private Map<String, String> env = Map.of();
    private String user = "";
    private String workdir = "";
    private Optional<StartCommand> start = Optional.empty();
    private Optional<Language> defaultLanguage = Optional.empty();
    private LimitChanges limits = LimitChanges.NONE;
    private Optional<Duration> timeout = Optional.empty();
    private LifecycleChanges lifecycle = LifecycleChanges.NONE;
    private Optional<Duration> maxLifetime = Optional.empty();
    private OptionalInt poolDepth = OptionalInt.empty();
    private OptionalInt poolMaxDepth = OptionalInt.empty();
    private List<TemplatePort> ports = List.of();
    private String runtime = "";
    private Map<String, String> labels = Map.of();

    /** Of nothing yet. */
    public TemplateDraft() {}

    public TemplateDraft(TemplateDefinition from) {
        name = from.name();
        description = from.description();
        image = from.image();
        recipe = from.recipe();
        dockerfile = from.dockerfile();
        packages = from.packages();
        files = from.files();
        commands = from.commands();
        context = from.context();
        env = from.env();
        user = from.user();
        workdir = from.workdir();
        start = from.start();
        defaultLanguage = from.defaultLanguage();
        limits = from.limits();
        timeout = from.timeout();
        lifecycle = from.lifecycle();
        maxLifetime = from.maxLifetime();
        poolDepth = from.poolDepth();
        poolMaxDepth = from.poolMaxDepth();
        ports = from.ports();
        runtime = from.runtime();
        labels = from.labels();
    }

    public TemplateDraft name(String value) {
        name = value;
        return this;
    }

    public TemplateDraft description(String value) {
        description = value;
        return this;
    }

    /** It is made of this image from now on. */
    public TemplateDraft image(String value) {
        image = value;
        if (!value.isEmpty()) {
            recipe = Optional.empty();
        }
        return this;
    }

    TemplateDraft recipe(String value) {
        recipe = Optional.of(value);
        return this;
    }

    /** It is made of this Dockerfile from now on. */
    public TemplateDraft dockerfile(String value) {
        dockerfile = value;
        if (!value.isEmpty()) {
            recipe = Optional.empty();
        }
        return this;
    }

    public TemplateDraft packages(Packages value) {
        packages = value;
        return this;
    }

    public TemplateDraft files(List<TemplateFile> value) {
        files = value;
        return this;
    }

    public TemplateDraft commands(List<String> value) {
        commands = value;
        return this;
    }

    public TemplateDraft context(Optional<BuildContext> value) {
        context = value;
        return this;
    }

    public TemplateDraft env(Map<String, String> value) {
        env = value;
        return this;
    }

    public TemplateDraft user(String value) {
        user = value;
        return this;
    }

    public TemplateDraft workdir(String value) {
        workdir = value;
        return this;
    }

    public TemplateDraft start(Optional<StartCommand> value) {
        start = value;
        return this;
    }

    public TemplateDraft defaultLanguage(Optional<Language> value) {
        defaultLanguage = value;
        return this;
    }

    public TemplateDraft limits(LimitChanges value) {
        limits = value;
        return this;
    }

    public TemplateDraft timeout(Optional<Duration> value) {
        timeout = value;
        return this;
    }

    public LifecycleChanges lifecycle() {
        return lifecycle;
    }

    public TemplateDraft lifecycle(LifecycleChanges value) {
        lifecycle = value;
        return this;
    }

    public TemplateDraft maxLifetime(Optional<Duration> value) {
        maxLifetime = value;
        return this;
    }

    public TemplateDraft poolDepth(OptionalInt value) {
        poolDepth = value;
        return this;
    }

    public TemplateDraft poolMaxDepth(OptionalInt value) {
        poolMaxDepth = value;
        return this;
    }

    public TemplateDraft ports(List<TemplatePort> value) {
        ports = value;
        return this;
    }

    public TemplateDraft runtime(String value) {
        runtime = value;
        return this;
    }

    public TemplateDraft labels(Map<String, String> value) {
        labels = value;
        return this;
    }

    public TemplateDefinition definition() {
        return new TemplateDefinition(
                name,
                description,
                image,
                recipe,
                dockerfile,
                packages,
                files,
                commands,
                context,
                env,
                user,
                workdir,
                start,
                defaultLanguage,
                limits,
                timeout,
                lifecycle,
                maxLifetime,
                poolDepth,
                poolMaxDepth,
                ports,
                runtime,
                labels);
    }
}
