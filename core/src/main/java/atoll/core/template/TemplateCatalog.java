package atoll.core.template;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.ProjectId;
import atoll.core.Settings;
import atoll.core.node.Image;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * All templates, in memory: those that come with Atoll and those that callers made, completed by what the node's images say of
 * themselves. Every call reads it, so what is read is an unchanging picture; what changes it makes a new one.
 */
public final class TemplateCatalog {
    public static final String DEFAULT = BuiltIns.DEFAULT;

    /** Templates that an error names in the place of one that can't be used. */
    private static final int MOST_NAMED = 4;

    /** A template with its versions. {@code record} is empty for one that comes with Atoll and is as it came. */
    record Known(
            String id,
            boolean builtIn,
            Optional<StoredTemplate> record,
            int current,
            int newest,
            NavigableMap<Integer, Template> versions) {
        Known {
            versions = Collections.unmodifiableNavigableMap(versions);
        }

        Template now() {
            return versions.getOrDefault(current, versions.lastEntry().getValue());
        }

        Template last() {
            return versions.getOrDefault(newest, now());
        }

        boolean isDeleted() {
            return record.flatMap(StoredTemplate::deletedAt).isPresent();
        }
    }

    /** What is known at a moment. */
    private record Picture(
            Map<String, Known> byId,
            List<Template> current,
            String defaultId,
            Map<String, Image> byDigest,
            Map<String, Image> byRecipe,
            Map<String, String> digests) {
        Optional<Image> image(String key) {
            Optional<String> recipe = ImageKeys.recipe(key);
            if (recipe.isPresent()) {
                return Optional.ofNullable(byRecipe.get(recipe.get()));
            }
            return ImageKeys.imageOf(key)
                    .or(() -> Optional.ofNullable(digests.get(key)))
                    .flatMap(digest -> Optional.ofNullable(byDigest.get(digest)));
        }
    }

    private final Settings settings;
    private final boolean fromRecipes;
    private final List<Runnable> listeners = new CopyOnWriteArrayList<>();
    private final ReentrantLock lock = new ReentrantLock();

    @GuardedBy("lock")
    private final Book book = new Book();

    /** What pictures are made of. */
    private static final class Book {
        final Map<String, StoredTemplate> records = new LinkedHashMap<>();
        /** As they are defined, without what images say. */
        final Map<String, NavigableMap<Integer, Template>> versions = new HashMap<>();

        final Map<String, String> digests = new HashMap<>();
        List<Image> images = List.of();
        Optional<String> chosenDefault = Optional.empty();
    }

    private volatile Picture picture;

    public TemplateCatalog(Settings settings) {
        this.settings = settings;
        this.fromRecipes = settings.builds().imagesFromRecipes();
        lock.lock();
        try {
            picture = picture(book);
        } finally {
            lock.unlock();
        }
    }

    /** Is told of every change, after it. To be called before anything changes. */
    public void onChange(Runnable listener) {
        listeners.add(listener);
    }

    private void change(Consumer<Book> what) {
        lock.lock();
        try {
            what.accept(book);
            picture = picture(book);
        } finally {
            lock.unlock();
        }
        listeners.forEach(Runnable::run);
    }

    /** Takes what is on record. */
    void load(
            List<StoredTemplate> stored,
            List<TemplateVersion> storedVersions,
            Map<String, String> storedDigests,
            Optional<String> defaultId) {
        change(now -> {
            stored.forEach(template -> now.records.put(template.id(), template));
            storedVersions.forEach(version -> add(now, version));
            now.digests.putAll(storedDigests);
            now.chosenDefault = defaultId;
        });
    }

    /** Takes note of what the node has. */
    public void imagesSeen(List<Image> seen) {
        change(now -> now.images = List.copyOf(seen));
    }

    /** The image of this key was made. */
    void imageMade(String key, Image image) {
        change(now -> {
            if (ImageKeys.recipe(key).isEmpty() && ImageKeys.imageOf(key).isEmpty()) {
                now.digests.put(key, image.digest());
            }
            List<Image> all = new ArrayList<>(now.images);
            all.removeIf(there -> there.digest().equals(image.digest()));
            all.add(image);
            now.images = List.copyOf(all);
        });
    }

    /** Takes a change of a template's record, with a version if there is a new one. */
    void put(StoredTemplate template, Optional<TemplateVersion> version) {
        change(now -> {
            now.records.put(template.id(), template);
            version.ifPresent(added -> add(now, added));
        });
    }

    /** Nothing is left of a deleted one. */
    void forget(String id) {
        change(now -> {
            // One that comes with Atoll stays deleted.
            if (!BuiltIns.byId().containsKey(id)) {
                now.records.remove(id);
            }
            now.versions.remove(id);
        });
    }

    void setDefault(String id) {
        change(now -> now.chosenDefault = Optional.of(id));
    }

    private void add(Book to, TemplateVersion version) {
        to.versions
                .computeIfAbsent(version.template(), _ -> new TreeMap<>())
                .put(
                        version.version(),
                        defined(version.template(), version.version(), version.definition(), List.of()));
    }

    // Making the picture.

    private Picture picture(Book from) {
        Map<String, Image> byDigest = new HashMap<>();
        Map<String, Image> byRecipe = new HashMap<>();
        for (Image image : from.images) {
            byDigest.put(image.digest(), image);
            if (image.origin() == Image.Origin.RECIPE) {
                byRecipe.put(image.name(), image);
            }
        }
        Picture bare = new Picture(Map.of(), List.of(), DEFAULT, byDigest, byRecipe, Map.copyOf(from.digests));
        Map<String, Known> byId = new LinkedHashMap<>();
        for (BuiltIns.BuiltIn builtIn : BuiltIns.byId().values()) {
            NavigableMap<Integer, Template> known =
                    new TreeMap<>(from.versions.getOrDefault(builtIn.id(), new TreeMap<>()));
            known.put(1, defined(builtIn.id(), 1, definition(builtIn), builtIn.languages()));
            add(byId, builtIn.id(), true, known, bare, from);
        }
        from.records.keySet().stream()
                .filter(id -> !BuiltIns.byId().containsKey(id))
                .forEach(id -> add(byId, id, false, from.versions.getOrDefault(id, new TreeMap<>()), bare, from));
        String defaultId = from.chosenDefault
                .filter(id -> Optional.ofNullable(byId.get(id))
                        .filter(known -> !known.isDeleted())
                        .isPresent())
                .orElse(DEFAULT);
        List<Template> current = new ArrayList<>();
        byId.values().stream().filter(known -> !known.isDeleted()).forEach(known -> {
            if (known.id().equals(defaultId)) {
                current.addFirst(known.now());
            } else {
                current.add(known.now());
            }
        });
        return new Picture(
                Collections.unmodifiableMap(byId), List.copyOf(current), defaultId, byDigest, byRecipe, bare.digests());
    }

    private static void add(
            Map<String, Known> byId,
            String id,
            boolean builtIn,
            NavigableMap<Integer, Template> known,
            Picture bare,
            Book from) {
        if (known.isEmpty()) {
            return;
        }
        NavigableMap<Integer, Template> completed = new TreeMap<>();
        known.forEach((number, template) -> completed.put(number, completed(template, bare)));
        Optional<StoredTemplate> record = Optional.ofNullable(from.records.get(id));
        byId.put(
                id,
                new Known(
                        id,
                        builtIn,
                        record,
                        record.map(StoredTemplate::current).orElse(1),
                        record.map(StoredTemplate::newest).orElse(1),
                        completed));
    }

    /** How a template that comes with Atoll is made here. */
    TemplateDefinition definition(BuiltIns.BuiltIn builtIn) {
        return fromRecipes ? builtIn.recipe() : builtIn.registry();
    }

    /** @param languages that its image is known to have before a node has it */
    private Template defined(String id, int version, TemplateDefinition definition, List<Language> languages) {
        Optional<Language> first = definition.defaultLanguage();
        List<Language> expected = new ArrayList<>(languages);
        first.filter(language -> !expected.contains(language)).ifPresent(expected::addFirst);
        return new Template(
                id,
                version,
                definition.name().isEmpty() ? id : definition.name(),
                definition.description(),
                definition.recipe().orElse(definition.image()),
                expected,
                first,
                definition.limits().applyTo(settings.limits()),
                definition.timeout().orElse(settings.timeout()),
                settings.poolDepth(id, definition.poolDepth()),
                definition.poolMaxDepth(),
                Map.of(),
                definition.env(),
                definition.lifecycle(),
                definition.maxLifetime(),
                definition.start(),
                definition.ports(),
                definition.runtime(),
                definition.labels(),
                ImageKeys.of(definition));
    }

    private static Template completed(Template template, Picture bare) {
        Optional<Image> image = bare.image(template.imageKey());
        if (image.isEmpty()) {
            return template;
        }
        List<Language> languages = image.get().languages();
        return new Template(
                template.id(),
                template.version(),
                template.name(),
                template.description(),
                template.image(),
                languages,
                template.defaultLanguage()
                        .filter(languages::contains)
                        .or(image.get()::defaultLanguage)
                        .or(() -> languages.stream().findFirst()),
                template.limits(),
                template.timeout(),
                template.poolDepth(),
                template.poolMaxDepth(),
                image.get().packages(),
                template.env(),
                template.lifecycle(),
                template.maxLifetime(),
                template.start(),
                template.ports(),
                template.runtime(),
                template.labels(),
                template.imageKey());
    }

    // Reading.

    /** The image of a template's version, once a node has it. */
    public Optional<Image> image(Template template) {
        return picture.image(template.imageKey());
    }

    Optional<Image> imageByDigest(String digest) {
        return Optional.ofNullable(picture.byDigest.get(digest));
    }

    Optional<Image> imageByRecipe(String recipe) {
        return Optional.ofNullable(picture.byRecipe.get(recipe));
    }

    Collection<Image> images() {
        return picture.byDigest.values();
    }

    /** The current version of each, the default one first. */
    public List<Template> all() {
        return picture.current;
    }

    public String defaultId() {
        return picture.defaultId;
    }

    Map<String, Known> known() {
        return picture.byId;
    }

    /** The one of that id, unless it is deleted or another project's. */
    Known require(ProjectId project, String id) {
        return known(project, id).orElseThrow(() -> notFound(project, id));
    }

    private Optional<Known> known(ProjectId project, String id) {
        return Optional.ofNullable(picture.byId.get(id)).filter(known -> !known.isDeleted() && visible(project, known));
    }

    Optional<Template> find(ProjectId project, String id) {
        return known(project, id).map(Known::now);
    }

    private static boolean visible(ProjectId project, Known known) {
        return known.builtIn() || known.record().map(StoredTemplate::project).equals(Optional.of(project));
    }

    /** Fails with {@code TEMPLATE_NOT_FOUND}. */
    public Template byId(ProjectId project, String id) {
        return require(project, id).now();
    }

    /** The version that a sandbox or a snapshot was made of, also when the template is deleted since; 0: the current one. */
    public Template ofRecord(String id, int version) {
        Known known = picture.byId.get(id);
        if (known == null) {
            throw notFound("template: \"" + TemplateDefinition.shown(id) + "\" (expected: one that is there)");
        }
        return known.versions().getOrDefault(version, known.now());
    }

    private AtollException notFound(ProjectId project, String id) {
        List<Template> all = visible(project);
        List<String> ids = all.stream().map(Template::id).limit(12).toList();
        return notFound("template: \"" + TemplateDefinition.shown(id) + "\" (expected: one of " + String.join(", ", ids)
                + (all.size() > ids.size() ? ", …" : "") + ")");
    }

    private static AtollException notFound(String message) {
        return new AtollException(
                ErrorCode.TEMPLATE_NOT_FOUND,
                message,
                "There is no template of that name.",
                "GET /v1/templates lists them; leave it out for the default.");
    }

    /** The digests of all images that a template, or a version that {@code used} names, is made of. */
    Set<String> digestsInUse(Set<VersionRef> used) {
        Picture now = picture;
        Set<String> digests = new HashSet<>();
        for (Known known : now.byId.values()) {
            known.versions().values().stream()
                    .filter(template -> used.contains(new VersionRef(template.id(), template.version()))
                            || (!known.isDeleted()
                                    && (template.version() >= known.current()
                                            || (known.builtIn() && template.version() == 1))))
                    .flatMap(template -> now.image(template.imageKey()).stream())
                    .forEach(image -> digests.add(image.digest()));
        }
        return digests;
    }

    /** Names a version of a template. */
    record VersionRef(String template, int version) {}

    /** The template of a sandbox to be made: the one named, or the first whose own language it is, or the default. */
    public Template choose(ProjectId project, Optional<String> id, Optional<Language> language) {
        if (id.isPresent()) {
            return byId(project, id.get());
        }
        if (language.isEmpty()) {
            return defaultOf(project);
        }
        List<Template> all = visible(project);
        for (Template template : all) {
            if (template.defaultLanguage().equals(language)) {
                return template;
            }
        }
        for (Template template : all) {
            if (template.languages().contains(language.get())) {
                return template;
            }
        }
        return defaultOf(project);
    }

    /** The installation's default; where that is another project's, the first that this one sees. */
    private Template defaultOf(ProjectId project) {
        return visible(project).stream().findFirst().orElseThrow(() -> notFound(project, DEFAULT));
    }

    /** The current versions of those that a project sees: its own and those that come with Atoll. The default one first. */
    public List<Template> visible(ProjectId project) {
        Picture now = picture;
        return now.current.stream()
                .filter(template -> Optional.ofNullable(now.byId.get(template.id()))
                        .filter(known -> visible(project, known))
                        .isPresent())
                .toList();
    }

    /** The language that a call gets in a sandbox of this template; fails with {@code LANGUAGE_UNAVAILABLE}. */
    public Language choose(ProjectId project, Template template, Optional<Language> language) {
        Optional<Language> chosen = language.or(template::defaultLanguage);
        if (chosen.isPresent() && template.languages().contains(chosen.get())) {
            return chosen.get();
        }
        List<String> others = visible(project).stream()
                .filter(other -> chosen.isPresent() && other.languages().contains(chosen.get()))
                .map(Template::id)
                .limit(MOST_NAMED)
                .toList();
        String has = template.languages().isEmpty()
                ? "none: it has no interpreter that Atoll knows"
                : "one of "
                        + String.join(
                                ", ",
                                template.languages().stream()
                                        .map(Language::text)
                                        .toList());
        throw new AtollException(
                ErrorCode.LANGUAGE_UNAVAILABLE,
                "language: " + chosen.map(Language::text).orElse("none") + " in a sandbox of template " + template.id()
                        + " (expected: " + has + ")",
                "The template's image has no " + chosen.map(Language::text).orElse("language") + ".",
                others.isEmpty()
                        ? "Use one of these languages, or start a program."
                        : "Use a sandbox of template " + String.join(" or ", others) + ".");
    }

    /** When a template that comes with Atoll came. */
    static final Instant BUILT_IN_SINCE = Instant.EPOCH;
}
