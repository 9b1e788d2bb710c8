package atoll.api;

import atoll.core.AtollException;
import atoll.core.BuildId;
import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.core.template.Build;
import atoll.core.template.BuildEvent;
import atoll.core.template.BuildLog;
import atoll.core.template.BuildSecrets;
import atoll.core.template.TemplateDraft;
import atoll.core.template.Templates;
import atoll.http.BodyInput;
import atoll.http.ByteStream;
import atoll.http.EventStream;
import atoll.http.Exchange;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;

/** {@code /v1/templates}: what sandboxes are made of, and the builds of their images. */
final class TemplatesApi {
    private static final Duration KEEP_ALIVE = Duration.ofSeconds(15);
    private static final int MOST_VERSIONS = 1 << 20;
    private static final byte[] STEP = EventStream.ascii("step");
    private static final byte[] LOG = EventStream.ascii("log");
    private static final byte[] PROGRESS = EventStream.ascii("progress");
    private static final byte[] DONE = EventStream.ascii("done");

    private final Templates templates;

    TemplatesApi(Templates templates) {
        this.templates = templates;
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<TemplateViews.TemplateView> all = templates.summaries(caller).stream()
                .map(TemplateViews.TemplateView::of)
                .toList();
        exchange.json(200, new Wire.Items<>(all, Optional.empty()));
    }

    void create(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), TemplateArguments.names("id", "build"));
        String id = fields.requiredText("id");
        var draft = new TemplateDraft();
        TemplateArguments.apply(fields, draft);
        Templates.Detail made = templates.create(caller, id, draft.definition());
        answer(exchange, 201, fields.flag("build") ? built(caller, id) : made);
    }

    private Templates.Detail built(Caller caller, String id) {
        Build begun = templates.build(caller, id, Optional.empty(), false, BuildSecrets.NONE);
        return templates.detail(caller, id, Optional.of(begun.version()));
    }

    private static void answer(Exchange exchange, int status, Templates.Detail detail)
            throws IOException, InterruptedException {
        exchange.json(status, TemplateViews.TemplateView.of(detail));
    }

    void get(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        // Without a number it is the one that sandboxes are made of.
        int current = templates.get(caller, id(exchange)).version();
        Optional<Integer> wanted = version(exchange).or(() -> Optional.of(current));
        answer(exchange, 200, templates.detail(caller, id(exchange), wanted));
    }

    private static Optional<Integer> version(Exchange exchange) {
        long number = exchange.query("version", 0, 1, MOST_VERSIONS);
        return number == 0 ? Optional.empty() : Optional.of((int) number);
    }

    void update(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), TemplateArguments.names("build"));
        Templates.Detail changed =
                templates.update(caller, id(exchange), draft -> TemplateArguments.apply(fields, draft));
        boolean build = fields.flag("build") && changed.summary().build() != Templates.BuildState.READY;
        answer(exchange, 200, build ? built(caller, id(exchange)) : changed);
    }

    void delete(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        templates.delete(caller, id(exchange));
        exchange.empty(204);
    }

    void duplicate(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), Set.of("id", "name"));
        answer(
                exchange,
                201,
                templates.duplicate(caller, id(exchange), fields.requiredText("id"), fields.text("name")));
    }

    void setDefault(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJsonIfAny(), Set.of());
        assert !fields.has("id");
        answer(exchange, 200, templates.setDefault(caller, id(exchange)));
    }

    void versions(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<TemplateViews.VersionView> all = templates.versions(caller, id(exchange)).stream()
                .map(TemplateViews.VersionView::of)
                .toList();
        exchange.json(200, new Wire.Items<>(all, Optional.empty()));
    }

    void dockerfile(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(
                200, new TemplateViews.DockerfileView(templates.dockerfile(caller, id(exchange), version(exchange))));
    }

    void putContext(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        try (var body = new BodyInput(exchange.bodyStream())) {
            Templates.Detail changed;
            try {
                changed = templates.putContext(caller, id(exchange), body);
            } catch (IOException | RuntimeException e) {
                body.rethrow();
                throw e;
            }
            answer(exchange, 200, changed);
        }
    }

    void saveSandbox(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), Set.of("id", "name"));
        SandboxId sandbox = SandboxId.parse(exchange.path("sandbox_id"));
        answer(exchange, 201, templates.saveSandbox(caller, sandbox, fields.requiredText("id"), fields.text("name")));
    }

    // Builds.

    void build(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJsonIfAny(), Set.of("no_cache", "version", "secrets"));
        OptionalInt version = fields.smallNumber("version");
        Build begun = templates.build(
                caller,
                id(exchange),
                version.isPresent() ? Optional.of(version.getAsInt()) : Optional.empty(),
                fields.flag("no_cache"),
                new BuildSecrets(fields.texts("secrets")));
        exchange.json(202, TemplateViews.BuildView.of(begun));
    }

    void builds(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<TemplateViews.BuildView> all = templates.builds(caller, id(exchange)).stream()
                .map(TemplateViews.BuildView::of)
                .toList();
        exchange.json(200, new Wire.Items<>(all, Optional.empty()));
    }

    void getBuild(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, TemplateViews.BuildView.of(templates.build(caller, id(exchange), buildId(exchange))));
    }

    void cancel(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJsonIfAny(), Set.of());
        assert !fields.has("id");
        exchange.json(200, TemplateViews.BuildView.of(templates.cancel(caller, id(exchange), buildId(exchange))));
    }

    /** Server-sent events; plain text for whoever asks for that. */
    void log(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        boolean follow = exchange.query("follow", false);
        String format = Optional.ofNullable(exchange.query("format"))
                .orElse(exchange.accepts("text/plain") ? "text" : "events");
        if (!format.equals("text") && !format.equals("events")) {
            throw AtollException.invalid(
                    "format: \"%s\" (expected: text or events)".formatted(format.length() > 64 ? "…" : format),
                    "Correct the query parameter.");
        }
        try (BuildLog log = templates.log(caller, id(exchange), buildId(exchange), follow)) {
            if (format.equals("text")) {
                text(exchange, log);
            } else {
                events(exchange, log);
            }
        }
    }

    private static void events(Exchange exchange, BuildLog log) throws IOException, InterruptedException {
        EventStream stream = exchange.events();
        while (!log.isOver()) {
            Optional<BuildEvent> event = log.next(Duration.ZERO);
            if (event.isEmpty() && !log.isOver()) {
                stream.flush();
                event = log.next(KEEP_ALIVE);
                if (event.isEmpty() && !log.isOver()) {
                    stream.keepAlive();
                }
            }
            if (event.isPresent()) {
                write(stream, event.get());
            }
        }
        stream.finish();
    }

    private static void write(EventStream stream, BuildEvent event) throws IOException, InterruptedException {
        switch (event) {
            case BuildEvent.Step(int number, int total, String text, boolean cached) ->
                stream.event(STEP, new TemplateViews.StepEvent(number, total, text, cached));
            case BuildEvent.Log(String text, boolean stderr) ->
                stream.event(LOG, new TemplateViews.LogEvent(text, stderr ? "stderr" : "stdout"));
            case BuildEvent.Progress(String what, long done, long total) ->
                stream.event(PROGRESS, TemplateViews.ProgressEvent.of(what, done, total));
            case BuildEvent.Done(Build build) -> stream.event(DONE, TemplateViews.BuildView.of(build));
        }
    }

    private static void text(Exchange exchange, BuildLog log) throws IOException, InterruptedException {
        ByteStream stream = exchange.stream(200, "text/plain; charset=utf-8");
        while (!log.isOver()) {
            Optional<BuildEvent> event = log.next(KEEP_ALIVE);
            String text = event.map(TemplatesApi::text).orElse("");
            if (!text.isEmpty()) {
                stream.write(ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)));
            }
        }
        stream.finish();
    }

    private static String text(BuildEvent event) {
        return switch (event) {
            case BuildEvent.Step(int number, int total, String text, boolean cached) ->
                "[%d/%d] %s%s%n".formatted(number, total, text, cached ? " (cached)" : "");
            case BuildEvent.Log(String text, boolean _) -> text;
            case BuildEvent.Progress _ -> "";
            case BuildEvent.Done(Build build) ->
                "%s%s%n"
                        .formatted(
                                build.state().text(),
                                build.failure()
                                        .map(failure -> ": " + failure.message())
                                        .orElse(""));
        };
    }

    private static String id(Exchange exchange) {
        return exchange.path("template_id");
    }

    private static BuildId buildId(Exchange exchange) {
        return BuildId.parse(exchange.path("build_id"));
    }
}
