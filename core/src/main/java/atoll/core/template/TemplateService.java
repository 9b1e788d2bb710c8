package atoll.core.template;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.BuildId;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.Settings;
import atoll.core.node.Image;
import atoll.core.node.ImageEvent;
import atoll.core.node.ImageSource;
import atoll.core.node.MakeImage;
import atoll.core.node.Node;
import atoll.core.node.NodeImages;
import atoll.core.node.NodeStream;
import atoll.core.sandbox.Sandbox;
import atoll.core.store.Store;
import atoll.core.template.TemplateCatalog.Known;
import atoll.core.template.TemplateCatalog.VersionRef;
import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.regex.Pattern;

/** Templates and images as callers see and change them. */
public final class TemplateService implements Templates, Images {
    private static final System.Logger LOG = System.getLogger(TemplateService.class.getName());
    private static final Pattern ID = Pattern.compile("[a-z0-9][a-z0-9._-]{0,62}");
    private static final int LISTED_BUILDS = 100;
    /** A context that was just uploaded is not named yet. */
    private static final Duration UPLOAD_GRACE = Duration.ofHours(1);

    private static final Duration UPLOAD_KEPT = Duration.ofDays(1);

    private final Store store;
    private final Node node;
    private final TemplateCatalog catalog;
    private final TemplateRecords records;
    private final RegistryService registries;
    private final BuildService builds;
    private final TemplateUsageCounter usage;
    private final TemplateFiles files;
    private final Settings all;
    private final Settings.Builds settings;
    private final InstantSource clock;
    private final BiFunction<Caller, SandboxId, Running> sandboxes;
    private final Supplier<Collection<Sandbox>> live;

    /** A sandbox that runs, and its body. */
    public record Running(Sandbox sandbox, BoxId box) {}

    /**
     * @param sandboxes finds one that runs, and fails for any other
     * @param live those that have not ended
     */
    public TemplateService(
            Store store,
            Node node,
            TemplateCatalog catalog,
            RegistryService registries,
            TemplateFiles files,
            Settings settings,
            InstantSource clock,
            Executor background,
            BiFunction<Caller, SandboxId, Running> sandboxes,
            Supplier<Collection<Sandbox>> live) {
        this.store = store;
        this.node = node;
        this.catalog = catalog;
        this.registries = registries;
        this.files = files;
        this.all = settings;
        this.settings = settings.builds();
        this.clock = clock;
        this.sandboxes = sandboxes;
        this.live = live;
        records = new TemplateRecords(store, catalog, clock);
        builds = new BuildService(
                store, node, catalog, records, files, registries, settings.builds(), clock, background);
        usage = new TemplateUsageCounter(store, clock);
    }

    /** Reads what is on record. */
    public void load() {
        records.load();
        usage.load();
        builds.load();
    }

    /** Puts on record what was counted, until its thread is interrupted. */
    public void run() {
        usage.run();
    }

    /** To be called at the end: what was counted last is on record then. */
    public void close() {
        usage.flush();
    }

    public BuildService builds() {
        return builds;
    }

    public TemplateUsageCounter usage() {
        return usage;
    }

    // Reading.

    @Override
    public List<Template> list(Caller caller) {
        caller.require(Scope.READ);
        return catalog.visible(caller.project());
    }

    @Override
    public Template get(Caller caller, String id) {
        caller.require(Scope.READ);
        return catalog.byId(caller.project(), id);
    }

    @Override
    public List<Summary> summaries(Caller caller) {
        List<Template> all = list(caller);
        Map<String, Build> last = builds.lastBuilds(caller.project());
        Map<String, TemplateUsage> used = usage.of(caller.project());
        Map<String, Known> known = catalog.known();
        return all.stream()
                .flatMap(template -> Optional.ofNullable(known.get(template.id())).stream())
                .map(one -> summary(
                        one,
                        one.now(),
                        Optional.ofNullable(last.get(one.id())),
                        used.getOrDefault(one.id(), TemplateUsage.NONE)))
                .toList();
    }

    private Summary summary(Known known, Template shown, Optional<Build> last, TemplateUsage used) {
        Instant since = TemplateCatalog.BUILT_IN_SINCE;
        return new Summary(
                shown,
                catalog.defaultId().equals(known.id()),
                known.builtIn(),
                known.newest(),
                catalog.image(shown).map(Image::digest),
                state(known, last),
                last,
                used,
                known.record().map(StoredTemplate::createdAt).orElse(since),
                known.record().map(StoredTemplate::updatedAt).orElse(since));
    }

    /** Of the newest version. */
    private BuildState state(Known known, Optional<Build> last) {
        String key = known.last().imageKey();
        Optional<Build> its = last.filter(build -> build.imageKey().equals(key));
        if (its.isPresent() && !its.get().state().isOver()) {
            return its.get().state() == Build.State.QUEUED ? BuildState.QUEUED : BuildState.BUILDING;
        }
        if (catalog.image(known.last()).isPresent()) {
            return BuildState.READY;
        }
        return its.map(Build::state)
                .map(state -> switch (state) {
                    case FAILED -> BuildState.FAILED;
                    case CANCELLED -> BuildState.CANCELLED;
                    case QUEUED, BUILDING, READY -> BuildState.NONE;
                })
                .orElse(BuildState.NONE);
    }

    @Override
    public Detail detail(Caller caller, String id, Optional<Integer> version) {
        caller.require(Scope.READ);
        return detail(caller.project(), id, version);
    }

    private Detail detail(ProjectId project, String id, Optional<Integer> version) {
        Known known = catalog.require(project, id);
        Template shown = version.map(number -> version(known, number)).orElseGet(known::last);
        Optional<Build> last = builds.list(project, id, 1).stream().findFirst();
        TemplateUsage used = usage.of(project).getOrDefault(id, TemplateUsage.NONE);
        return new Detail(summary(known, shown, last, used), records.definition(project, id, shown.version()));
    }

    private static Template version(Known known, int number) {
        return Optional.ofNullable(known.versions().get(number))
                .orElseThrow(() -> TemplateRecords.noVersion(known.id(), number));
    }

    @Override
    public List<Version> versions(Caller caller, String id) {
        caller.require(Scope.READ);
        Known known = catalog.require(caller.project(), id);
        Map<Integer, Instant> times = store.templateVersionTimes(owner(known, caller.project()), id);
        return known.versions().descendingMap().values().stream()
                .map(template -> new Version(
                        template,
                        template.version() == known.current(),
                        catalog.image(template).map(Image::digest),
                        times.getOrDefault(template.version(), TemplateCatalog.BUILT_IN_SINCE)))
                .toList();
    }

    private static ProjectId owner(Known known, ProjectId otherwise) {
        return known.record().map(StoredTemplate::project).orElse(otherwise);
    }

    @Override
    public String dockerfile(Caller caller, String id, Optional<Integer> version) {
        caller.require(Scope.READ);
        Known known = catalog.require(caller.project(), id);
        return builds.dockerfile(
                caller.project(), version.map(number -> version(known, number)).orElseGet(known::last));
    }

    // Changing.

    @Override
    public Detail create(Caller caller, String id, TemplateDefinition definition) {
        caller.require(Scope.EXECUTE);
        checkId(id);
        checkBounds(definition);
        records.create(caller.project(), id, definition);
        return detail(caller.project(), id, Optional.empty());
    }

    private static void checkId(String id) {
        if (!ID.matcher(id).matches()) {
            throw AtollException.invalid(
                    "id: \"" + TemplateDefinition.shown(id)
                            + "\" (expected: 1 to 63 of a-z, 0-9, ., _ and -, beginning with a letter or digit)",
                    "Choose another id.");
        }
    }

    private void checkBounds(TemplateDefinition definition) {
        Limits checked = all.bounds().check(definition.limits().applyTo(all.limits()));
        assert checked.memoryBytes() > 0;
        definition.timeout().ifPresent(timeout -> {
            if (timeout.compareTo(all.maxTimeout()) > 0) {
                throw AtollException.invalid(
                        "timeout_seconds: " + timeout.toSeconds() + " (expected: at most "
                                + all.maxTimeout().toSeconds() + ")",
                        "Give a shorter one, or raise the setting execution.max_timeout_seconds.");
            }
        });
    }

    @Override
    public Detail update(Caller caller, String id, Consumer<TemplateDraft> changes) {
        caller.require(Scope.EXECUTE);
        Known known = catalog.require(caller.project(), id);
        TemplateDefinition before = records.definition(caller.project(), id, known.newest());
        TemplateDraft draft = new TemplateDraft(before);
        changes.accept(draft);
        TemplateDefinition after = draft.definition();
        if (!after.equals(before)) {
            checkBounds(after);
            records.addVersion(caller.project(), id, after);
        }
        return detail(caller.project(), id, Optional.empty());
    }

    @Override
    public Detail putContext(Caller caller, String id, InputStream tar) throws IOException {
        caller.require(Scope.EXECUTE);
        Known known = catalog.require(caller.project(), id);
        TemplateDefinition before = records.definition(caller.project(), id, known.newest());
        if (before.dockerfile().isEmpty()) {
            throw AtollException.invalid(
                    "context: template " + id + " has no Dockerfile (expected: one that copies from it)",
                    "Give it a dockerfile first.");
        }
        BuildContext context = files.putContext(tar, settings.maxContextBytes());
        return update(caller, id, draft -> draft.context(Optional.of(context)));
    }

    @Override
    public void delete(Caller caller, String id) {
        caller.require(Scope.EXECUTE);
        records.delete(caller.project(), id);
        builds.underWay(caller.project(), id).ifPresent(builds::cancelLater);
    }

    @Override
    public Detail duplicate(Caller caller, String id, String newId, Optional<String> name) {
        caller.require(Scope.EXECUTE);
        Known known = catalog.require(caller.project(), id);
        TemplateDefinition from = records.definition(caller.project(), id, known.newest());
        TemplateDraft draft = new TemplateDraft(from);
        draft.name(name.orElseGet(() -> known.last().name() + " (copy)"));
        return create(caller, newId, draft.definition());
    }

    @Override
    public Detail setDefault(Caller caller, String id) {
        caller.require(Scope.ADMIN);
        records.setDefault(caller.project(), id);
        return detail(caller.project(), id, Optional.empty());
    }

    @Override
    public Detail saveSandbox(Caller caller, SandboxId sandboxId, String newId, Optional<String> name)
            throws InterruptedException {
        caller.require(Scope.EXECUTE);
        checkId(newId);
        Known there = catalog.known().get(newId);
        if (there != null && !there.isDeleted()) {
            throw new AtollException(
                    ErrorCode.CONFLICT,
                    "template: \"" + newId + "\" is there already (expected: an id that no template has)",
                    "",
                    "Choose another id.");
        }
        Running running = sandboxes.apply(caller, sandboxId);
        Sandbox sandbox = running.sandbox();
        Image image =
                make(new MakeImage(newId + "@1", new ImageSource.SavedBox(running.box())), Optional.empty(), _ -> {});
        TemplateDefinition from = records.definition(sandbox.project(), sandbox.template(), versionOf(sandbox));
        TemplateDraft draft = new TemplateDraft(from)
                .name(name.orElse(newId))
                .description("Saved from sandbox " + sandboxId + ".")
                .dockerfile("")
                .image(image.digest())
                .packages(Packages.NONE)
                .files(List.of())
                .commands(List.of())
                .context(Optional.empty())
                // Its image says so by now.
                .user("")
                .workdir("");
        return create(caller, newId, draft.definition());
    }

    private int versionOf(Sandbox sandbox) {
        return catalog.ofRecord(sandbox.template(), sandbox.templateVersion()).version();
    }

    // Builds.

    @Override
    public Build build(Caller caller, String id, Optional<Integer> version, boolean noCache, BuildSecrets secrets) {
        caller.require(Scope.EXECUTE);
        Known known = catalog.require(caller.project(), id);
        Template template = version.map(number -> version(known, number)).orElseGet(known::last);
        return builds.begin(caller.project(), template, noCache, secrets);
    }

    @Override
    public List<Build> builds(Caller caller, String id) {
        caller.require(Scope.READ);
        return builds.list(
                caller.project(), catalog.require(caller.project(), id).id(), LISTED_BUILDS);
    }

    @Override
    public Build build(Caller caller, String id, BuildId build) {
        caller.require(Scope.READ);
        return builds.get(caller.project(), id, build);
    }

    @Override
    public Build cancel(Caller caller, String id, BuildId build) throws InterruptedException {
        caller.require(Scope.EXECUTE);
        return builds.cancel(builds.get(caller.project(), id, build));
    }

    @Override
    public BuildLog log(Caller caller, String id, BuildId build, boolean follow) {
        caller.require(Scope.READ);
        return builds.log(builds.get(caller.project(), id, build), follow);
    }

    // Images.

    @Override
    public List<Used> images(Caller caller) {
        caller.require(Scope.READ);
        catalog.imagesSeen(node.images());
        List<Used> all = new ArrayList<>();
        for (Image image : catalog.images()) {
            List<String> templates = catalog.visible(caller.project()).stream()
                    .filter(template -> catalog.image(template)
                            .filter(its -> its.digest().equals(image.digest()))
                            .isPresent())
                    .map(Template::id)
                    .toList();
            all.add(new Used(image, templates));
        }
        all.sort(Comparator.comparing((Used used) -> used.image().builtAt())
                .reversed()
                .thenComparing(used -> used.image().digest()));
        return all;
    }

    @Override
    public Image pull(Caller caller, String reference, Consumer<ImageEvent> events) throws InterruptedException {
        caller.require(Scope.EXECUTE);
        TemplateDefinition checked = new TemplateDraft().image(reference).definition();
        if (reference.startsWith(TemplateDockerfile.NAMESPACE)
                || ImageKeys.digest(reference).isPresent()) {
            throw AtollException.invalid(
                    "reference: \"" + TemplateDefinition.shown(reference) + "\" (expected: an image of a registry)",
                    "That one is made here.");
        }
        var source = new ImageSource.Registry(
                checked.image(), registries.credentials(caller.project()), settings.plainHttp());
        return make(new MakeImage(reference, source), Optional.empty(), events);
    }

    @Override
    public Image importArchive(Caller caller, String name, InputStream archive) throws InterruptedException {
        caller.require(Scope.EXECUTE);
        checkId(name);
        return make(new MakeImage(name, new ImageSource.Archive()), Optional.of(archive), _ -> {});
    }

    private Image make(MakeImage request, Optional<InputStream> body, Consumer<ImageEvent> told)
            throws InterruptedException {
        builds.requireDisk();
        try (NodeStream<ImageEvent> events = node.makeImage(request, body)) {
            Optional<ImageEvent> event = events.next();
            while (event.isPresent()) {
                if (event.get() instanceof ImageEvent.Done(Image image)) {
                    catalog.imagesSeen(node.images());
                    return image;
                }
                told.accept(event.get());
                event = events.next();
            }
        }
        throw AtollException.internal("the node made no image and did not say why", null);
    }

    @Override
    public long deleteImage(Caller caller, String digest) {
        caller.require(Scope.ADMIN);
        String plain = ImageKeys.digest(digest)
                .orElseThrow(() -> AtollException.invalid(
                        "digest: \"" + TemplateDefinition.shown(digest) + "\" (expected: 64 characters of 0-9 and a-f)",
                        "GET /v1/images lists them."));
        List<String> users = catalog.all().stream()
                .filter(template -> catalog.image(template)
                        .filter(image -> image.digest().equals(plain))
                        .isPresent())
                .map(Template::id)
                .toList();
        if (!users.isEmpty()) {
            throw new AtollException(
                    ErrorCode.CONFLICT,
                    "image: " + plain + " is that of template " + String.join(", ", users) + " (expected: of none)",
                    "",
                    "Delete the template first.");
        }
        if (catalog.imageByDigest(plain).isEmpty()) {
            catalog.imagesSeen(node.images());
            if (catalog.imageByDigest(plain).isEmpty()) {
                throw new AtollException(
                        ErrorCode.IMAGE_NOT_FOUND,
                        "image: " + plain + " was not found",
                        "The node has none of that digest.",
                        "GET /v1/images lists those that are there.");
            }
        }
        long freed = node.deleteImage(plain);
        catalog.imagesSeen(node.images());
        return freed;
    }

    @Override
    public NodeImages.Pruned prune(Caller caller) {
        caller.require(Scope.ADMIN);
        return prune(clock.instant());
    }

    private NodeImages.Pruned prune(Instant builtBefore) {
        NodeImages.Pruned pruned = node.pruneImages(catalog.digestsInUse(versionsInUse()), builtBefore);
        if (!pruned.digests().isEmpty()) {
            catalog.imagesSeen(node.images());
        }
        return pruned;
    }

    /** Those of live sandboxes and snapshots. */
    private Set<VersionRef> versionsInUse() {
        Set<VersionRef> used = new HashSet<>();
        live.get().forEach(sandbox -> used.add(ref(sandbox.template(), sandbox.templateVersion())));
        store.liveSnapshots().forEach(snapshot -> used.add(ref(snapshot.template(), snapshot.templateVersion())));
        return used;
    }

    private VersionRef ref(String template, int version) {
        try {
            return new VersionRef(template, catalog.ofRecord(template, version).version());
        } catch (AtollException _) {
            // Nothing is known of it any more.
            return new VersionRef(template, version);
        }
    }

    /** Removes what nothing names any more. */
    public void sweep() {
        builds.sweep();
        Set<VersionRef> used = versionsInUse();
        Set<String> contexts = new HashSet<>();
        for (TemplateVersion version : store.templateVersions()) {
            version.definition().context().ifPresent(context -> contexts.add(context.digest()));
        }
        for (String context : files.contexts(clock.instant().minus(UPLOAD_GRACE))) {
            if (!contexts.contains(context)) {
                files.deleteContext(context);
            }
        }
        files.deleteUploads(clock.instant().minus(UPLOAD_KEPT));
        Instant oldest = clock.instant().minus(settings.keepLogs());
        for (StoredTemplate stored : store.templates()) {
            boolean past = stored.deletedAt().filter(at -> at.isBefore(oldest)).isPresent();
            if (past && used.stream().noneMatch(ref -> ref.template().equals(stored.id()))) {
                records.forget(stored);
            }
        }
        try {
            NodeImages.Pruned pruned = prune(clock.instant().minus(settings.keepImages()));
            LOG.log(System.Logger.Level.DEBUG, pruned.digests().size() + " images were removed that nothing needs");
        } catch (AtollException e) {
            LOG.log(System.Logger.Level.INFO, "images are pruned later: " + e.message());
        }
    }
}
