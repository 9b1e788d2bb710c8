package atoll.api;

import atoll.core.Language;
import atoll.core.node.Image;
import atoll.core.node.NodeImages;
import atoll.core.sandbox.OnTimeout;
import atoll.core.sandbox.Term;
import atoll.core.template.Build;
import atoll.core.template.BuildContext;
import atoll.core.template.Images;
import atoll.core.template.LimitChanges;
import atoll.core.template.Registries;
import atoll.core.template.StartCommand;
import atoll.core.template.Template;
import atoll.core.template.TemplateDefinition;
import atoll.core.template.TemplatePort;
import atoll.core.template.Templates;
import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;

/** Templates, builds, images and registries as JSON. */
final class TemplateViews {
    private TemplateViews() {}

    private static Optional<Instant> since(Instant at) {
        return at.equals(Instant.EPOCH) ? Optional.empty() : Optional.of(at);
    }

    private static List<String> texts(List<Language> languages) {
        return languages.stream().map(Language::text).toList();
    }

    private static double seconds(Duration time) {
        return time.toMillis() / 1000.0;
    }

    /** {@code definition} is there where one template is asked for. */
    record TemplateView(
            String id,
            int version,
            int newestVersion,
            String name,
            String description,
            String image,
            List<String> languages,
            Optional<String> defaultLanguage,
            Wire.Limits limits,
            double timeoutSeconds,
            int poolDepth,
            Map<String, Map<String, String>> packages,
            @JsonProperty("default") boolean isDefault,
            boolean builtIn,
            String buildState,
            Optional<BuildView> build,
            Optional<String> imageDigest,
            long executions,
            Optional<Instant> lastUsedAt,
            List<PortView> ports,
            Optional<String> runtime,
            Map<String, String> labels,
            Optional<Instant> createdAt,
            Optional<Instant> updatedAt,
            @JsonInclude(JsonInclude.Include.NON_ABSENT) Optional<DefinitionView> definition) {
        static TemplateView of(Templates.Summary summary) {
            return of(summary, Optional.empty());
        }

        static TemplateView of(Templates.Detail detail) {
            return of(detail.summary(), Optional.of(DefinitionView.of(detail.definition())));
        }

        private static TemplateView of(Templates.Summary summary, Optional<DefinitionView> definition) {
            Template template = summary.template();
            return new TemplateView(
                    template.id(),
                    template.version(),
                    summary.newest(),
                    template.name(),
                    template.description(),
                    template.image(),
                    texts(template.languages()),
                    template.defaultLanguage().map(Language::text),
                    Wire.Limits.of(template.limits()),
                    seconds(template.timeout()),
                    template.poolDepth(),
                    template.packages(),
                    summary.isDefault(),
                    summary.builtIn(),
                    summary.build().name().toLowerCase(Locale.ROOT),
                    summary.lastBuild().map(BuildView::of),
                    summary.imageDigest(),
                    summary.usage().executions(),
                    summary.usage().lastUsedAt(),
                    template.ports().stream().map(PortView::of).toList(),
                    Optional.of(template.runtime()).filter(name -> !name.isEmpty()),
                    template.labels(),
                    since(summary.createdAt()),
                    since(summary.updatedAt()),
                    definition);
        }
    }

    record PortView(int port, String name) {
        static PortView of(TemplatePort port) {
            return new PortView(port.port(), port.name());
        }
    }

    /** As callers send it; what they need not say is null or empty. */
    record DefinitionView(
            String name,
            String description,
            Optional<String> image,
            Optional<String> recipe,
            Optional<String> dockerfile,
            Packages packages,
            List<FileView> files,
            List<String> commands,
            Optional<ContextView> context,
            Map<String, String> env,
            Optional<String> user,
            Optional<String> workdir,
            Optional<Start> start,
            Optional<String> defaultLanguage,
            LimitsView limits,
            Optional<Double> timeoutSeconds,
            Lifetime lifetime,
            Optional<Long> idleTimeoutSeconds,
            Optional<String> onTimeout,
            Optional<Boolean> autoResume,
            Pool pool,
            String network,
            List<PortView> ports,
            Optional<String> runtime,
            Map<String, String> labels) {
        static DefinitionView of(TemplateDefinition d) {
            return new DefinitionView(
                    d.name(),
                    d.description(),
                    text(d.image()),
                    d.recipe(),
                    text(d.dockerfile()),
                    new Packages(
                            d.packages().apt(),
                            d.packages().pip(),
                            d.packages().npm(),
                            d.packages().go()),
                    d.files().stream()
                            .map(file -> new FileView(
                                    file.path(), file.base64(), "%04o".formatted(file.mode()), text(file.owner())))
                            .toList(),
                    d.commands(),
                    d.context().map(ContextView::of),
                    d.env(),
                    text(d.user()),
                    text(d.workdir()),
                    d.start().map(Start::of),
                    d.defaultLanguage().map(Language::text),
                    LimitsView.of(d.limits()),
                    d.timeout().map(TemplateViews::seconds),
                    new Lifetime(
                            d.lifecycle().lifetime().map(DefinitionView::seconds),
                            d.maxLifetime().map(Duration::toSeconds)),
                    d.lifecycle().idleTimeout().map(DefinitionView::seconds),
                    d.lifecycle().onTimeout().map(OnTimeout::text),
                    d.lifecycle().autoResume(),
                    new Pool(boxed(d.poolDepth()), boxed(d.poolMaxDepth())),
                    "none",
                    d.ports().stream().map(PortView::of).toList(),
                    text(d.runtime()),
                    d.labels());
        }

        private static Optional<String> text(String text) {
            return text.isEmpty() ? Optional.empty() : Optional.of(text);
        }

        /** 0 for no bound. */
        private static long seconds(Term term) {
            return term.length().map(Duration::toSeconds).orElse(0L);
        }

        private static Optional<Integer> boxed(OptionalInt number) {
            return number.isPresent() ? Optional.of(number.getAsInt()) : Optional.empty();
        }
    }

    record Packages(List<String> apt, List<String> pip, List<String> npm, List<String> go) {}

    record FileView(String path, String contentBase64, String mode, Optional<String> owner) {}

    record ContextView(String digest, long bytes) {
        static ContextView of(BuildContext context) {
            return new ContextView(context.digest(), context.bytes());
        }
    }

    record Lifetime(Optional<Long> defaultSeconds, Optional<Long> maxSeconds) {}

    record Pool(Optional<Integer> depth, Optional<Integer> maxDepth) {}

    record Start(String command, ReadyView ready) {
        static Start of(StartCommand start) {
            double timeout = seconds(start.ready().timeout());
            Optional<Integer> noPort = Optional.empty();
            Optional<String> none = Optional.empty();
            return new Start(
                    start.command(),
                    switch (start.ready().check()) {
                        case StartCommand.Check.Started _ -> new ReadyView(noPort, none, none, timeout);
                        case StartCommand.Check.Port(int port) -> new ReadyView(Optional.of(port), none, none, timeout);
                        case StartCommand.Check.Http(int port, String path) ->
                            new ReadyView(Optional.of(port), Optional.of(path), none, timeout);
                        case StartCommand.Check.Command(String command) ->
                            new ReadyView(noPort, none, Optional.of(command), timeout);
                    });
        }
    }

    record ReadyView(Optional<Integer> port, Optional<String> path, Optional<String> command, double timeoutSeconds) {}

    record LimitsView(
            Optional<Long> memoryBytes,
            Optional<Double> cpu,
            Optional<Long> diskBytes,
            Optional<Integer> maxProcesses,
            Optional<Integer> maxOpenFiles) {
        static LimitsView of(LimitChanges limits) {
            return new LimitsView(
                    boxed(limits.memoryBytes()),
                    DefinitionView.boxed(limits.cpuMillis()).map(millis -> millis / 1000.0),
                    boxed(limits.diskBytes()),
                    DefinitionView.boxed(limits.maxProcesses()),
                    DefinitionView.boxed(limits.maxOpenFiles()));
        }

        private static Optional<Long> boxed(OptionalLong number) {
            return number.isPresent() ? Optional.of(number.getAsLong()) : Optional.empty();
        }
    }

    record VersionView(
            int version,
            boolean current,
            String name,
            String image,
            List<String> languages,
            Optional<String> imageDigest,
            Optional<Instant> createdAt) {
        static VersionView of(Templates.Version version) {
            Template template = version.template();
            return new VersionView(
                    template.version(),
                    version.current(),
                    template.name(),
                    template.image(),
                    texts(template.languages()),
                    version.imageDigest(),
                    since(version.createdAt()));
        }
    }

    record BuildView(
            String buildId,
            String template,
            int version,
            String state,
            String cause,
            boolean noCache,
            Optional<StepView> step,
            Optional<FailureView> failure,
            Optional<String> imageDigest,
            Instant createdAt,
            Optional<Instant> startedAt,
            Optional<Instant> endedAt) {
        static BuildView of(Build build) {
            return new BuildView(
                    build.id().toString(),
                    build.template(),
                    build.version(),
                    build.state().text(),
                    build.cause().text(),
                    build.noCache(),
                    Optional.of(build.step())
                            .filter(step -> step.number() > 0)
                            .map(step -> new StepView(step.number(), step.total(), step.text())),
                    build.failure()
                            .map(failure -> new FailureView(failure.code(), failure.message(), failure.lastLines())),
                    build.imageDigest(),
                    build.createdAt(),
                    build.startedAt(),
                    build.endedAt());
        }
    }

    record StepView(int number, int total, String text) {}

    record FailureView(String code, String message, String lastLines) {}

    record StepEvent(int number, int total, String text, boolean cached) {}

    record LogEvent(String text, String stream) {}

    record ProgressEvent(String what, long doneBytes, Optional<Long> totalBytes) {
        static ProgressEvent of(String what, long done, long total) {
            return new ProgressEvent(what, done, total > 0 ? Optional.of(total) : Optional.empty());
        }
    }

    record ImageView(
            String digest,
            String name,
            long sizeBytes,
            List<String> languages,
            Optional<String> defaultLanguage,
            String origin,
            Optional<String> source,
            Optional<String> user,
            Map<String, Map<String, String>> packages,
            List<String> templates,
            Optional<Instant> builtAt) {
        static ImageView of(Images.Used used) {
            return of(used.image(), used.templates());
        }

        static ImageView of(Image image) {
            return of(image, List.of());
        }

        private static ImageView of(Image image, List<String> templates) {
            return new ImageView(
                    image.digest(),
                    image.name(),
                    image.sizeBytes(),
                    texts(image.languages()),
                    image.defaultLanguage().map(Language::text),
                    image.origin().text(),
                    DefinitionView.text(image.source()),
                    DefinitionView.text(image.user()),
                    image.packages(),
                    templates,
                    since(image.builtAt()));
        }
    }

    record Freed(long freedBytes) {}

    record PrunedView(List<String> digests, long freedBytes) {
        static PrunedView of(NodeImages.Pruned pruned) {
            return new PrunedView(pruned.digests(), pruned.freedBytes());
        }
    }

    record RegistryView(String host, String username, Instant updatedAt) {
        static RegistryView of(Registries.Registry registry) {
            return new RegistryView(registry.host(), registry.username(), registry.updatedAt());
        }
    }

    record DockerfileView(String dockerfile) {}
}
