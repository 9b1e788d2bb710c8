package atoll.core.template;

import atoll.core.AtollException;
import atoll.core.BuildId;
import atoll.core.ErrorCode;
import atoll.core.ProjectId;
import atoll.core.Settings;
import atoll.core.node.Image;
import atoll.core.node.ImageEvent;
import atoll.core.node.ImageSource;
import atoll.core.node.MakeImage;
import atoll.core.node.Node;
import atoll.core.node.NodeInfo;
import atoll.core.node.NodeStream;
import atoll.core.store.Store;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.io.InputStream;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Builds images of templates. Each build has a thread of its own that waits: for the one before it of the same template, for the templates
 * that it is made of, for its turn among all builds; then it follows the node to the end. Who asks for what is being built already is given
 * that build. A build that a stopped server leaves behind has failed with that reason, and the next use of its template begins another.
 */
public final class BuildService {
    private static final System.Logger LOG = System.getLogger(BuildService.class.getName());
    private static final int MOST_WAITING = 64;
    private static final int DISK_PERCENT_LEFT = 10;

    private final Store store;
    private final Node node;
    private final TemplateCatalog catalog;
    private final TemplateRecords records;
    private final TemplateFiles files;
    private final RegistryService registries;
    private final Settings.Builds settings;
    private final InstantSource clock;
    private final Executor background;
    private final Semaphore slots;

    private final ReentrantLock lock = new ReentrantLock();

    /** Those that have not ended, in the order in which they were asked for. */
    @GuardedBy("lock")
    private final Map<BuildId, BuildJob> jobs = new LinkedHashMap<>();

    BuildService(
            Store store,
            Node node,
            TemplateCatalog catalog,
            TemplateRecords records,
            TemplateFiles files,
            RegistryService registries,
            Settings.Builds settings,
            InstantSource clock,
            Executor background) {
        this.store = store;
        this.node = node;
        this.catalog = catalog;
        this.records = records;
        this.files = files;
        this.registries = registries;
        this.settings = settings;
        this.clock = clock;
        this.background = background;
        this.slots = new Semaphore(settings.parallel(), true);
    }

    /** What a stopped server was about has failed. */
    void load() {
        for (Build left : store.unfinishedBuilds()) {
            store.saveBuild(left.ended(
                    Build.State.FAILED,
                    Optional.of(new Build.Failure(
                            "shutting_down",
                            "The server was stopped while the image was being built.",
                            BuildJob.lastLines(files, left.id()))),
                    Optional.empty(),
                    clock.instant()));
        }
    }

    // First use.

    /**
     * The template, once its image is there. A build that is needed is begun, or the one that is under way waited for.
     *
     * @throws AtollException {@code TEMPLATE_BUILDING} when it takes longer than the settings allow; {@code TEMPLATE_BUILD_FAILED}
     */
    public Template ready(ProjectId project, Template wanted) throws InterruptedException {
        if (catalog.image(wanted).isPresent()) {
            return wanted;
        }
        // It may have been built, or come back, since the node was last asked.
        catalog.imagesSeen(node.images());
        if (catalog.image(wanted).isPresent()) {
            return catalog.ofRecord(wanted.id(), wanted.version());
        }
        BuildJob job = firstUse(project, wanted);
        try {
            Build build = job.ended().get(settings.patience().toMillis(), TimeUnit.MILLISECONDS);
            if (build.state() != Build.State.READY) {
                throw failed(build);
            }
            return catalog.ofRecord(wanted.id(), wanted.version());
        } catch (TimeoutException e) {
            throw building(job.build());
        } catch (ExecutionException e) {
            throw AtollException.internal("the build of template " + wanted.id() + " went wrong", e.getCause());
        }
    }

    private BuildJob firstUse(ProjectId project, Template wanted) {
        Optional<Build> last = store.builds(project, wanted.id(), 1).stream().findFirst();
        boolean hopeless = last.filter(build -> build.imageKey().equals(wanted.imageKey()) && isItsFault(build))
                .isPresent();
        if (hopeless && active(wanted).isEmpty()) {
            throw failed(last.get());
        }
        return begin(project, wanted, Build.Cause.FIRST_USE, false, BuildSecrets.NONE, List.of());
    }

    /** Whether building the same again would fail again. */
    private static boolean isItsFault(Build build) {
        return build.state() == Build.State.FAILED
                && build.failure()
                        .filter(failure -> failure.code().equals(text(ErrorCode.BUILD_STEP_FAILED))
                                || failure.code().equals(text(ErrorCode.INVALID_REQUEST))
                                || failure.code().equals(text(ErrorCode.IMAGE_NOT_FOUND)))
                        .isPresent();
    }

    static String text(ErrorCode code) {
        return code.name().toLowerCase(Locale.ROOT);
    }

    private static AtollException building(Build build) {
        String step = build.step().number() == 0
                ? "it has not begun"
                : "at step " + build.step().number() + " of " + build.step().total() + ": "
                        + TemplateDefinition.shown(build.step().text());
        return new AtollException(
                ErrorCode.TEMPLATE_BUILDING,
                "template: " + build.template() + " is being built (" + step + ")",
                "Its image is not ready yet: build " + build.id() + ".",
                "Try again later; GET " + logPath(build) + "?follow=1 follows it.");
    }

    private static String logPath(Build build) {
        return "/v1/templates/" + build.template() + "/builds/" + build.id() + "/log";
    }

    private static AtollException failed(Build build) {
        String why = build.failure()
                .map(Build.Failure::message)
                .orElse("It was " + build.state().text() + ".");
        // A step that fails is named by the node already.
        String step = build.step().number() == 0
                        || why.contains("step " + build.step().number() + " of ")
                ? ""
                : " at step " + build.step().number() + " ("
                        + TemplateDefinition.shown(build.step().text()) + ")";
        String lines = build.failure().map(Build.Failure::lastLines).orElse("");
        return new AtollException(
                ErrorCode.TEMPLATE_BUILD_FAILED,
                "template: " + build.template() + ": build " + build.id()
                        + (build.state() == Build.State.CANCELLED ? " was cancelled" : " failed") + step + ": " + why,
                lines.isEmpty() ? "Its image could not be built." : "The last lines of its log:\n" + lines,
                "Correct the template, or build it again with POST /v1/templates/" + build.template() + ":build. GET "
                        + logPath(build) + " has all of the log.");
    }

    // Builds.

    Build begin(ProjectId project, Template template, boolean noCache, BuildSecrets secrets) {
        return begin(project, template, Build.Cause.REQUEST, noCache, secrets, List.of())
                .build();
    }

    private Optional<BuildJob> active(Template template) {
        lock.lock();
        try {
            return jobs.values().stream()
                    .filter(job -> job.build().template().equals(template.id())
                            && job.build().imageKey().equals(template.imageKey()))
                    .findFirst();
        } finally {
            lock.unlock();
        }
    }

    /** @param chain the templates whose builds wait for this one */
    private BuildJob begin(
            ProjectId project,
            Template template,
            Build.Cause cause,
            boolean noCache,
            BuildSecrets secrets,
            List<String> chain) {
        BuildJob job;
        lock.lock();
        try {
            Optional<BuildJob> there =
                    active(template).filter(one -> (!noCache || one.build().noCache()) && one.has(secrets));
            if (there.isPresent()) {
                return there.get();
            }
            if (jobs.size() >= MOST_WAITING) {
                throw new AtollException(
                        ErrorCode.TOO_MANY_REQUESTS,
                        "builds: " + jobs.size() + " are under way or wait (expected: fewer than " + MOST_WAITING + ")",
                        "",
                        "Try again when some have ended.");
            }
            Build build = new Build(
                    BuildId.random(),
                    project,
                    template.id(),
                    template.version(),
                    template.imageKey(),
                    Build.State.QUEUED,
                    cause,
                    noCache,
                    Build.Step.NONE,
                    Optional.empty(),
                    Optional.empty(),
                    clock.instant(),
                    Optional.empty(),
                    Optional.empty());
            Optional<BuildJob> before = jobs.values().stream()
                    .filter(one -> one.build().template().equals(template.id()))
                    .reduce((_, later) -> later);
            job = new BuildJob(build, files, before, secrets, chain);
            store.saveBuild(build);
            jobs.put(build.id(), job);
        } finally {
            lock.unlock();
        }
        background.execute(() -> run(job));
        return job;
    }

    private void run(BuildJob job) {
        Optional<Image> made = Optional.empty();
        Optional<AtollException> failure = Optional.empty();
        try {
            job.enter();
            job.awaitTurn();
            made = Optional.of(make(job));
        } catch (InterruptedException e) {
            if (!job.isCancelled() && !job.isLate()) {
                // The server stops: the next start finds it and says so.
                Thread.currentThread().interrupt();
                drop(job);
                return;
            }
        } catch (AtollException e) {
            failure = Optional.of(e);
        } catch (RuntimeException e) {
            LOG.log(System.Logger.Level.ERROR, "build " + job.build().id() + " went wrong", e);
            failure = Optional.of(AtollException.internal("the build went wrong: " + e, e));
        } finally {
            job.leave();
        }
        end(job, made, failure);
    }

    private void end(BuildJob job, Optional<Image> made, Optional<AtollException> failure) {
        Build.State state =
                made.isPresent() ? Build.State.READY : job.isCancelled() ? Build.State.CANCELLED : Build.State.FAILED;
        Optional<Build.Failure> why = Optional.empty();
        if (state == Build.State.FAILED) {
            String code = failure.map(e -> text(e.code())).orElse("timeout");
            String message = failure.map(AtollException::message)
                    .orElse("It took longer than " + settings.timeout().toSeconds()
                            + " s, which the setting build.timeout_seconds allows.");
            why = Optional.of(new Build.Failure(code, message, job.lastLines()));
        }
        Build ended = job.build().ended(state, why, made.map(Image::digest), clock.instant());
        try {
            if (made.isPresent()) {
                records.imageMade(ended.imageKey(), made.get());
            }
            store.saveBuild(ended);
        } catch (RuntimeException e) {
            LOG.log(System.Logger.Level.ERROR, "build " + ended.id() + " could not be put on record", e);
        } finally {
            drop(job);
            job.end(ended);
        }
        LOG.log(
                System.Logger.Level.INFO,
                "build " + ended.id() + " of template " + ended.template() + "@" + ended.version() + ": " + state.text()
                        + why.map(failed -> ": " + failed.message()).orElse(""));
    }

    private void drop(BuildJob job) {
        lock.lock();
        try {
            jobs.remove(job.build().id());
        } finally {
            lock.unlock();
        }
    }

    private Image make(BuildJob job) throws InterruptedException {
        Build build = job.build();
        TemplateDefinition definition = records.definition(build.project(), build.template(), build.version());
        Map<String, Image> bases = bases(job, definition);
        slots.acquire();
        try {
            job.begin(build.started(clock.instant()));
            store.saveBuild(job.build());
            job.watch(settings.timeout());
            // A template that is another one's image and nothing else.
            Optional<Image> same = TemplateDockerfile.isNeeded(definition)
                    ? Optional.empty()
                    : Optional.ofNullable(bases.get(definition.image()));
            if (same.isPresent()) {
                return same.get();
            }
            requireDisk();
            return make(job, request(job, definition, bases), body(definition));
        } finally {
            slots.release();
        }
    }

    private Image make(BuildJob job, MakeImage request, Optional<InputStream> body) throws InterruptedException {
        try (NodeStream<ImageEvent> events = node.makeImage(request, body)) {
            Optional<ImageEvent> event = events.next();
            while (event.isPresent()) {
                if (event.get() instanceof ImageEvent.Done(Image image)) {
                    return image;
                }
                job.note(event.get());
                event = events.next();
            }
            throw AtollException.internal("the node ended the build and said nothing of an image", null);
        }
    }

    /** The images of the node that it is made of, by what the Dockerfile calls them. */
    private Map<String, Image> bases(BuildJob job, TemplateDefinition definition) throws InterruptedException {
        Map<String, Image> bases = new LinkedHashMap<>();
        Build build = job.build();
        for (String id : TemplateDockerfile.bases(definition)) {
            bases.put(TemplateDockerfile.NAMESPACE + id, base(job, id));
        }
        Optional<String> digest = ImageKeys.digest(definition.image());
        if (digest.isPresent()) {
            bases.put(
                    definition.image(),
                    catalog.imageByDigest(digest.get())
                            .or(() -> seenNow(() -> catalog.imageByDigest(digest.get())))
                            .orElseThrow(() -> noImage(definition.image())));
        }
        if (definition.recipe().isPresent() && TemplateDockerfile.isNeeded(definition)) {
            bases.put(TemplateDockerfile.BASE, recipe(job, definition.recipe().get()));
        }
        assert build.id().equals(job.build().id());
        return bases;
    }

    private interface Look {
        Optional<Image> find();
    }

    private Optional<Image> seenNow(Look look) {
        catalog.imagesSeen(node.images());
        return look.find();
    }

    private static AtollException noImage(String image) {
        return new AtollException(
                ErrorCode.IMAGE_NOT_FOUND,
                "image: " + TemplateDefinition.shown(image) + " is not on the node",
                "It was removed, or never was there.",
                "GET /v1/images lists those that are there.");
    }

    private Image base(BuildJob job, String id) throws InterruptedException {
        Build build = job.build();
        Template base = catalog.byId(build.project(), id);
        Optional<Image> there = catalog.image(base).or(() -> seenNow(() -> catalog.image(base)));
        if (there.isPresent()) {
            return there.get();
        }
        if (id.equals(build.template()) || job.chain().contains(id)) {
            throw AtollException.invalid(
                    "image: template " + id + " is made of itself (expected: of something that can be built first)",
                    "Name another image in one of " + String.join(", ", job.chain()) + " and " + build.template()
                            + ".");
        }
        List<String> chain = new ArrayList<>(job.chain());
        chain.add(build.template());
        BuildJob first = begin(build.project(), base, Build.Cause.BASE, false, BuildSecrets.NONE, chain);
        try {
            Build done = first.ended().get();
            if (done.state() != Build.State.READY) {
                throw failed(done);
            }
        } catch (ExecutionException e) {
            throw AtollException.internal("the build of template " + id + " went wrong", e.getCause());
        }
        return catalog.image(catalog.ofRecord(id, base.version())).orElseThrow(() -> noImage(id));
    }

    private Image recipe(BuildJob job, String recipe) throws InterruptedException {
        Optional<Image> there = catalog.imageByRecipe(recipe).or(() -> seenNow(() -> catalog.imageByRecipe(recipe)));
        if (there.isPresent()) {
            return there.get();
        }
        slots.acquire();
        try {
            Image made = make(job, new MakeImage(recipe, new ImageSource.Recipe(recipe)), Optional.empty());
            records.imageMade("recipe:" + recipe, made);
            return made;
        } finally {
            slots.release();
        }
    }

    private MakeImage request(BuildJob job, TemplateDefinition definition, Map<String, Image> bases) {
        Build build = job.build();
        String name = build.template() + "@" + build.version();
        if (!TemplateDockerfile.isNeeded(definition)) {
            return definition
                    .recipe()
                    .map(recipe -> new MakeImage(recipe, new ImageSource.Recipe(recipe)))
                    .orElseGet(() -> new MakeImage(
                            name,
                            new ImageSource.Registry(
                                    definition.image(),
                                    registries.credentials(build.project()),
                                    settings.plainHttp())));
        }
        TemplateDockerfile compiled = compiled(definition, bases);
        Map<String, String> named = new LinkedHashMap<>();
        bases.forEach((base, image) -> named.put(base, image.digest()));
        Optional.ofNullable(bases.get(definition.image()))
                .ifPresent(image -> named.put(TemplateDockerfile.BASE, image.digest()));
        return new MakeImage(
                name,
                new ImageSource.Dockerfile(
                        compiled.text(),
                        Map.of(),
                        "",
                        named,
                        registries.credentials(build.project()),
                        settings.plainHttp(),
                        settings.limits(),
                        new ImageSource.Network(settings.network(), settings.allow()),
                        settings.env(),
                        build.noCache(),
                        settings.timeout(),
                        job.secrets()));
    }

    private static TemplateDockerfile compiled(TemplateDefinition definition, Map<String, Image> bases) {
        Optional<Image> base = Optional.ofNullable(bases.get(TemplateDockerfile.BASE))
                .or(() -> Optional.ofNullable(bases.get(definition.image())));
        return TemplateDockerfile.of(
                definition, base.isPresent(), base.map(Image::user).orElse(""));
    }

    private Optional<InputStream> body(TemplateDefinition definition) {
        Optional<BuildContext> context = definition.context();
        if (context.isEmpty()) {
            return TemplateDockerfile.of(definition, true, "").context().map(tar -> tar.get());
        }
        return Optional.of(files.context(context.get().digest())
                .orElseThrow(() -> AtollException.invalid(
                        "context: the uploaded files are gone (expected: a context that is there)",
                        "Upload them again with PUT /v1/templates/{id}/context.")));
    }

    /** Fails where there is no room for another image. */
    void requireDisk() {
        NodeInfo info = node.info();
        if (info.diskTotalBytes() > 0 && info.diskAvailableBytes() < info.diskTotalBytes() / 100 * DISK_PERCENT_LEFT) {
            throw new AtollException(
                    ErrorCode.DISK_FULL,
                    "disk: " + (info.diskAvailableBytes() >> 20) + " MiB of " + (info.diskTotalBytes() >> 20)
                            + " MiB are free (expected: at least " + DISK_PERCENT_LEFT + " %)",
                    "No image is built on a disk that is nearly full.",
                    "Free some of it: POST /v1/images:prune removes images that nothing needs.");
        }
        long images = catalog.images().stream().mapToLong(Image::sizeBytes).sum();
        if (settings.imageQuotaBytes() > 0 && images > settings.imageQuotaBytes()) {
            throw new AtollException(
                    ErrorCode.DISK_FULL,
                    "images: " + (images >> 20) + " MiB (expected: at most " + (settings.imageQuotaBytes() >> 20)
                            + " MiB)",
                    "The images of this node have reached their quota.",
                    "POST /v1/images:prune removes those that nothing needs; or raise the setting images.quota_mib.");
        }
    }

    // Looking.

    Optional<Build> underWay(ProjectId project, String template) {
        lock.lock();
        try {
            return jobs.values().stream()
                    .map(BuildJob::build)
                    .filter(build ->
                            build.template().equals(template) && build.project().equals(project))
                    .reduce((_, later) -> later);
        } finally {
            lock.unlock();
        }
    }

    List<Build> list(ProjectId project, String template, int most) {
        return store.builds(project, template, most).stream()
                .map(build -> job(build.id()).map(BuildJob::build).orElse(build))
                .toList();
    }

    Build get(ProjectId project, String template, BuildId id) {
        return job(id).map(BuildJob::build)
                .or(() -> store.build(id))
                .filter(build ->
                        build.project().equals(project) && build.template().equals(template))
                .orElseThrow(() -> new AtollException(
                        ErrorCode.BUILD_NOT_FOUND,
                        "build: " + id + " of template " + TemplateDefinition.shown(template) + " was not found",
                        "There is none of that id, or its record was removed by retention.",
                        "GET /v1/templates/{id}/builds lists those that are there."));
    }

    private Optional<BuildJob> job(BuildId id) {
        lock.lock();
        try {
            return Optional.ofNullable(jobs.get(id));
        } finally {
            lock.unlock();
        }
    }

    Build cancel(Build build) throws InterruptedException {
        Optional<BuildJob> job = job(build.id());
        if (job.isEmpty()) {
            return get(build.project(), build.template(), build.id());
        }
        job.get().cancel();
        try {
            return job.get().ended().get();
        } catch (ExecutionException e) {
            throw AtollException.internal("the build could not be cancelled", e.getCause());
        }
    }

    void cancelLater(Build build) {
        job(build.id()).ifPresent(BuildJob::cancel);
    }

    BuildLog log(Build build, boolean follow) {
        return new BuildLogReader(files, build, job(build.id()), follow);
    }

    /** The Dockerfile of a version; empty if it is an image or a recipe as it is. */
    String dockerfile(ProjectId project, Template template) {
        TemplateDefinition definition = records.definition(project, template.id(), template.version());
        if (!TemplateDockerfile.isNeeded(definition)) {
            return "";
        }
        Map<String, Image> bases = new LinkedHashMap<>();
        definition
                .recipe()
                .flatMap(catalog::imageByRecipe)
                .or(() -> baseThatIsHere(project, definition))
                .ifPresent(image -> bases.put(TemplateDockerfile.BASE, image));
        String user = bases.values().stream().findFirst().map(Image::user).orElse("");
        return TemplateDockerfile.of(definition, definition.recipe().isPresent(), user)
                .text();
    }

    /** The image of the template or digest that a definition names; empty if it is not here, or it names a registry's. */
    private Optional<Image> baseThatIsHere(ProjectId project, TemplateDefinition definition) {
        if (definition.image().startsWith(TemplateDockerfile.NAMESPACE)) {
            String id = definition.image().substring(TemplateDockerfile.NAMESPACE.length());
            return catalog.find(project, id).flatMap(catalog::image);
        }
        return ImageKeys.digest(definition.image()).flatMap(catalog::imageByDigest);
    }

    /** Removes logs and records of builds that are over and past their time. */
    void sweep() {
        List<BuildId> gone = store.removeBuilds(clock.instant().minus(settings.keepLogs()), settings.keepBuilds());
        gone.forEach(files::deleteLog);
        Set<BuildId> logs = files.logs();
        for (BuildId id : logs) {
            if (job(id).isEmpty() && store.build(id).isEmpty()) {
                files.deleteLog(id);
            }
        }
    }

    /** For the state of a template: where it is a build's, and not yet on record. */
    Map<String, Build> lastBuilds(ProjectId project) {
        Map<String, Build> last = new LinkedHashMap<>();
        store.lastBuilds(project).forEach(build -> last.put(build.template(), build));
        lock.lock();
        try {
            jobs.values().stream()
                    .map(BuildJob::build)
                    .filter(build -> build.project().equals(project))
                    .forEach(build -> last.put(build.template(), build));
        } finally {
            lock.unlock();
        }
        return last;
    }
}
