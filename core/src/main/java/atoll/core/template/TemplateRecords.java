package atoll.core.template;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.ProjectId;
import atoll.core.node.Image;
import atoll.core.store.Store;
import atoll.core.template.TemplateCatalog.Known;
import java.time.InstantSource;
import java.util.Optional;
import java.util.concurrent.locks.ReentrantLock;

/** Changes of templates, one after another: first on record, then in the catalog. */
final class TemplateRecords {
    private static final int MOST_TEMPLATES = 1000;

    private final Store store;
    private final TemplateCatalog catalog;
    private final InstantSource clock;
    private final ReentrantLock lock = new ReentrantLock();

    TemplateRecords(Store store, TemplateCatalog catalog, InstantSource clock) {
        this.store = store;
        this.catalog = catalog;
        this.clock = clock;
    }

    void load() {
        catalog.load(
                store.templates(),
                store.templateVersions(),
                store.templateImages(),
                store.defaultTemplate(ProjectId.DEFAULT));
    }

    void create(ProjectId project, String id, TemplateDefinition definition) {
        lock.lock();
        try {
            Known there = catalog.known().get(id);
            if (there != null && !there.isDeleted()) {
                throw new AtollException(
                        ErrorCode.CONFLICT,
                        "template: \"" + id + "\" is there already (expected: an id that no template has)",
                        "",
                        "Choose another id, or change that one with PATCH /v1/templates/" + id + ".");
            }
            if (catalog.all().size() >= MOST_TEMPLATES) {
                throw new AtollException(
                        ErrorCode.QUOTA_EXCEEDED,
                        "templates: " + catalog.all().size() + " (expected: at most " + MOST_TEMPLATES + ")",
                        "",
                        "Delete those that are not needed.");
            }
            // Sandboxes of a deleted one of that id keep what they are made of: versions go on.
            int version = there == null ? 1 : there.newest() + 1;
            save(
                    new StoredTemplate(
                            project, id, version, version, clock.instant(), clock.instant(), Optional.empty()),
                    Optional.of(definition));
        } finally {
            lock.unlock();
        }
    }

    /** A new version. It is the current one at once where its image is there, or none was ever there. */
    void addVersion(ProjectId project, String id, TemplateDefinition definition) {
        lock.lock();
        try {
            Known known = catalog.require(project, id);
            int version = known.newest() + 1;
            StoredTemplate next = record(known, project).at(known.current(), version, clock.instant());
            save(next, Optional.of(definition));
            Known now = catalog.require(project, id);
            if (isHere(now.last()) || !isHere(now.now())) {
                save(next.at(version, version, clock.instant()), Optional.empty());
            }
        } finally {
            lock.unlock();
        }
    }

    private boolean isHere(Template template) {
        return catalog.image(template).isPresent();
    }

    /** The image of this key is there: versions made of it may become current. */
    void imageMade(String key, Image image) {
        lock.lock();
        try {
            if (ImageKeys.recipe(key).isEmpty() && ImageKeys.imageOf(key).isEmpty()) {
                store.saveTemplateImage(key, image.digest(), clock.instant());
            }
            catalog.imageMade(key, image);
            for (Known known : catalog.known().values()) {
                boolean waits = !known.isDeleted() && known.newest() > known.current();
                if (waits && known.last().imageKey().equals(key)) {
                    save(
                            known.record().orElseThrow().at(known.newest(), known.newest(), clock.instant()),
                            Optional.empty());
                }
            }
        } finally {
            lock.unlock();
        }
    }

    void delete(ProjectId project, String id) {
        lock.lock();
        try {
            Known known = catalog.require(project, id);
            if (catalog.defaultId().equals(id)) {
                throw new AtollException(
                        ErrorCode.CONFLICT,
                        "template: \"" + id + "\" is the default one (expected: another)",
                        "Sandboxes whose maker names no template are made of it.",
                        "Make another one the default first.");
            }
            save(record(known, project).deleted(clock.instant()), Optional.empty());
        } finally {
            lock.unlock();
        }
    }

    void setDefault(ProjectId project, String id) {
        lock.lock();
        try {
            Known known = catalog.require(project, id);
            store.saveDefaultTemplate(project, known.id());
            catalog.setDefault(known.id());
        } finally {
            lock.unlock();
        }
    }

    void forget(StoredTemplate deleted) {
        lock.lock();
        try {
            Known known = catalog.known().get(deleted.id());
            if (known == null || known.isDeleted()) {
                store.removeTemplate(
                        deleted.project(), deleted.id(), BuiltIns.byId().containsKey(deleted.id()));
                catalog.forget(deleted.id());
            }
        } finally {
            lock.unlock();
        }
    }

    private void save(StoredTemplate template, Optional<TemplateDefinition> definition) {
        Optional<TemplateVersion> version = definition.map(text ->
                new TemplateVersion(template.project(), template.id(), template.newest(), text, clock.instant()));
        store.saveTemplate(template, version);
        catalog.put(template, version);
    }

    private static StoredTemplate record(Known known, ProjectId project) {
        return known.record()
                .orElseGet(() -> new StoredTemplate(
                        project,
                        known.id(),
                        1,
                        1,
                        TemplateCatalog.BUILT_IN_SINCE,
                        TemplateCatalog.BUILT_IN_SINCE,
                        Optional.empty()));
    }

    /** How a version is defined. */
    TemplateDefinition definition(ProjectId project, String id, int version) {
        BuiltIns.BuiltIn builtIn = BuiltIns.byId().get(id);
        if (builtIn != null && version == 1) {
            return catalog.definition(builtIn);
        }
        Known known = catalog.known().get(id);
        ProjectId owner = known == null
                ? project
                : known.record().map(StoredTemplate::project).orElse(project);
        return store.templateVersion(owner, id, version)
                .map(TemplateVersion::definition)
                .orElseThrow(() -> noVersion(id, version));
    }

    static AtollException noVersion(String id, int version) {
        return new AtollException(
                ErrorCode.TEMPLATE_NOT_FOUND,
                "template: " + id + " has no version " + version,
                "",
                "GET /v1/templates/" + id + "/versions lists them.");
    }
}
