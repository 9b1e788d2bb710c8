package atoll.core.snapshot;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.Page;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.Settings;
import atoll.core.SnapshotId;
import atoll.core.event.Event;
import atoll.core.node.Node;
import atoll.core.node.NodeSnapshot;
import atoll.core.pool.Pools;
import atoll.core.sandbox.Labels;
import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.Run;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxService;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Source;
import atoll.core.sandbox.Term;
import atoll.core.store.OnceByKey;
import atoll.core.store.Store;
import atoll.core.template.Limits;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.UnaryOperator;

/**
 * Snapshots: a record here, a file on the node. The record comes first and goes first: so whatever a crash leaves, the next comparison
 * of both ({@link #reconcile}) finds a record without its file, or a file without its record, and knows what was meant.
 */
public final class SnapshotService implements Snapshots {
    private static final System.Logger LOG = System.getLogger(SnapshotService.class.getName());
    private static final String OPERATION = "create_snapshot";
    /** The label of a snapshot's file that tells whose it is, for people who look at the node. */
    private static final String PROJECT = "atoll.project";
    /** How long a delete waits for the node before it lets the node finish alone. */
    private static final long DELETE_WAIT_MILLIS = 700;

    private static final Duration SWEEP_PERIOD = Duration.ofSeconds(1);

    private final SandboxService sandboxes;
    private final TemplateCatalog templates;
    private final Store store;
    private final Node node;
    private final Settings settings;
    private final InstantSource clock;
    private final Executor background;
    private final OnceByKey once = new OnceByKey();
    /** Those that are being made or taken in: what is on record and on the node of them is no sign of a crash. */
    private final Set<SnapshotId> busy = ConcurrentHashMap.newKeySet();
    /** Why the node can't restore some, as it said last. */
    private volatile Map<SnapshotId, String> unusable = Map.of();

    /** Held while a record is read and changed: so names stay unique and no change is lost. */
    private final ReentrantLock records = new ReentrantLock();

    /** No snapshot expires before. */
    @GuardedBy("records")
    private Instant nextExpiry = Instant.MIN;

    public SnapshotService(
            SandboxService sandboxes,
            TemplateCatalog templates,
            Store store,
            Node node,
            Settings settings,
            InstantSource clock,
            Executor background) {
        this.sandboxes = sandboxes;
        this.templates = templates;
        this.store = store;
        this.node = node;
        this.settings = settings;
        this.clock = clock;
        this.background = background;
    }

    // Making.

    @Override
    public Snapshot create(Caller caller, SandboxId sandbox, CreateSnapshot request) throws InterruptedException {
        caller.require(Scope.EXECUTE);
        if (request.idempotencyKey().isEmpty()) {
            return make(caller, sandbox, request, SnapshotId.random());
        }
        try (OnceByKey.Turn turn =
                once.begin(caller.project(), request.idempotencyKey().get())) {
            List<Object> parts = new ArrayList<>(request.parts());
            parts.add(sandbox);
            SnapshotId id = SnapshotId.parse(
                    turn.claim(store, OPERATION, parts, SnapshotId.random().toString(), clock.instant()));
            Optional<Snapshot> there = store.snapshot(id);
            return there.isPresent() && there.get().state() != SnapshotState.CREATING
                    ? seen(there.get())
                    : make(caller, sandbox, request, id);
        }
    }

    private Snapshot make(Caller caller, SandboxId sandbox, CreateSnapshot request, SnapshotId id)
            throws InterruptedException {
        LiveSandbox source = sandboxes.requireLive(caller, sandbox);
        busy.add(id);
        try {
            source.lifecycle().lockInterruptibly();
            try {
                requireStill(source);
                // One whose making was cut off by a crash is made again, under the id it has.
                store.removeSnapshot(id);
                Snapshot creating = creating(source, request, id);
                insert(creating);
                return made(source, creating);
            } finally {
                source.lifecycle().unlock();
            }
        } finally {
            busy.remove(id);
        }
    }

    /** Sees to it that it runs or is paused, and nothing between. Requires: its lifecycle is held. */
    void requireStill(LiveSandbox source) {
        sandboxes.settle(source);
        Sandbox now = source.sandbox();
        if (now.state() == SandboxState.ENDED) {
            throw SandboxService.endedError(now);
        }
        if (now.state() == SandboxState.CREATING) {
            throw new AtollException(
                    ErrorCode.CONFLICT,
                    "sandbox: " + now.id() + " is still being made",
                    "",
                    "Wait for the call that makes it.");
        }
    }

    private Snapshot creating(LiveSandbox source, CreateSnapshot request, SnapshotId id) {
        Sandbox of = source.sandbox();
        Instant now = clock.instant();
        return new Snapshot(
                id,
                of.project(),
                request.name(),
                request.kind(),
                Optional.of(of.id()),
                of.template(),
                of.templateVersion(),
                parent(of),
                of.limits(),
                of.env(),
                Source.held(source),
                request.labels(),
                SnapshotState.CREATING,
                0,
                Duration.ZERO,
                now,
                expiry(request.expiresIn(), now),
                "");
    }

    private Optional<Instant> expiry(Optional<Term> asked, Instant now) {
        return asked.map(Term::length).orElse(settings.lives().snapshots()).map(now::plus);
    }

    /** The snapshot on record that its present state goes back to, before its own life began. */
    private Optional<SnapshotId> parent(Sandbox of) {
        for (Run run : store.runs(of.id()).reversed()) {
            boolean copied = switch (run.how()) {
                case SNAPSHOT, FORK, ROLLBACK -> true;
                case START, RESUME -> false;
            };
            if (copied) {
                return run.from().filter(from -> store.snapshot(from).isPresent());
            }
        }
        return Optional.empty();
    }

    private Snapshot made(LiveSandbox source, Snapshot creating) {
        NodeSnapshot written;
        try {
            written = node.createSnapshot(
                    source.box(),
                    creating.id(),
                    creating.kind(),
                    Map.of(PROJECT, creating.project().toString()));
        } catch (RuntimeException e) {
            forget(creating.id(), e);
            throw e instanceof AtollException known && known.code() == ErrorCode.DISK_FULL
                    ? diskFull(known)
                    : sandboxes.translated(source, e);
        }
        Snapshot ready =
                update(creating.id(), there -> holding(there, written).ready(written.sizeBytes(), written.stopped()));
        event(
                ready,
                "snapshot.created",
                ready.sandbox().map(SandboxId::toString).orElse(""));
        return ready;
    }

    /** A snapshot that came to nothing leaves nothing; what a node has that is away, it has when the request comes again. */
    private void forget(SnapshotId id, RuntimeException why) {
        store.removeSnapshot(id);
        if (why instanceof AtollException known && known.code() == ErrorCode.NODE_UNAVAILABLE) {
            return;
        }
        try {
            node.deleteSnapshot(id);
        } catch (AtollException e) {
            LOG.log(System.Logger.Level.INFO, "snapshot " + id + " is left to the next start: " + e.message());
        }
    }

    private static AtollException diskFull(AtollException e) {
        return new AtollException(
                ErrorCode.DISK_FULL,
                "snapshot: there is no room for it: " + e.message(),
                e.reason(),
                "Delete snapshots that are not needed (GET /v1/snapshots lists them) or paused sandboxes, or give the data"
                        + " folder a larger disk. The sandbox runs on.",
                e);
    }

    /** The contexts that are in the file; what nobody has on record was being opened in that moment. */
    private static Snapshot holding(Snapshot record, NodeSnapshot written) {
        if (written.kind() == SnapshotKind.FILES) {
            return record;
        }
        return record.holding(held(record.contexts(), written));
    }

    static List<Snapshot.Held> held(List<Snapshot.Held> onRecord, NodeSnapshot written) {
        Map<ContextId, Snapshot.Held> known = new HashMap<>();
        onRecord.forEach(held -> known.put(held.id(), held));
        return written.contexts().stream()
                .map(held -> known.getOrDefault(
                        held.id(), new Snapshot.Held(held.id(), held.language(), false, "", Map.of())))
                .toList();
    }

    // Looking and changing.

    @Override
    public Snapshot get(Caller caller, SnapshotId id) {
        caller.require(Scope.READ);
        return seen(owned(caller, id));
    }

    @Override
    public Page<Snapshot> list(Caller caller, SnapshotQuery query) {
        caller.require(Scope.READ);
        return store.snapshots(caller.project(), query).map(this::seen);
    }

    @Override
    public Snapshot update(Caller caller, SnapshotId id, UpdateSnapshot changes) {
        caller.require(Scope.EXECUTE);
        Snapshot before = owned(caller, id);
        Instant now = clock.instant();
        return seen(update(before.id(), there -> {
            Optional<String> name = changes.name().or(there::name);
            if (!name.equals(there.name())) {
                requireFree(there.project(), name);
            }
            Optional<Instant> expiresAt = changes.expiresIn().isPresent()
                    ? changes.expiresIn().get().length().map(now::plus)
                    : there.expiresAt();
            return there.revised(name, Labels.changed(there.labels(), changes.labels()), expiresAt);
        }));
    }

    @Override
    public void delete(Caller caller, SnapshotId id) {
        caller.require(Scope.EXECUTE);
        Snapshot there = owned(caller, id);
        if (busy.contains(id)) {
            throw stillBeingMade(id);
        }
        CompletableFuture<Void> removed = remove(there, "Deleted by key " + caller.key() + ".");
        try {
            removed.get(DELETE_WAIT_MILLIS, TimeUnit.MILLISECONDS);
        } catch (ExecutionException | TimeoutException e) {
            LOG.log(System.Logger.Level.INFO, "snapshot " + id + " is still being removed: " + e.getMessage());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private CompletableFuture<Void> remove(Snapshot there, String why) {
        store.removeSnapshot(there.id());
        event(there, "snapshot.deleted", why);
        return removeFile(there.id());
    }

    CompletableFuture<Void> removeFile(SnapshotId id) {
        return CompletableFuture.runAsync(() -> node.deleteSnapshot(id), background);
    }

    @Override
    public Sandbox rollback(Caller caller, SandboxId sandbox, SnapshotId id) {
        caller.require(Scope.EXECUTE);
        LiveSandbox alive = sandboxes.requireLive(caller, sandbox);
        Snapshot target = usable(caller, id);
        if (!target.sandbox().equals(Optional.of(sandbox))) {
            throw AtollException.invalid(
                    "snapshot: " + id + " was not made of sandbox " + sandbox + " (expected: one of its own, of "
                            + target.sandbox().map(SandboxId::toString).orElse("another installation") + " it is)",
                    "POST /v1/sandboxes with this snapshot makes a new sandbox of it.");
        }
        return sandboxes.rollback(alive, target);
    }

    /** What a new sandbox is made from; fails for a snapshot that can't be restored. */
    public Source open(Caller caller, SnapshotId id) {
        caller.require(Scope.EXECUTE);
        Snapshot from = usable(caller, id);
        return new Source(
                Run.How.SNAPSHOT,
                from.template(),
                from.templateVersion(),
                from.limits(),
                from.env(),
                from.kind(),
                from.contexts(),
                Optional.of(id),
                Optional.empty(),
                new Sandbox.Origin(from.sandbox(), Optional.of(id)));
    }

    // As files.

    @Override
    public InputStream exportFile(Caller caller, SnapshotId id) {
        caller.require(Scope.EXECUTE);
        return node.exportSnapshot(present(caller, id).id());
    }

    @Override
    public Snapshot importFile(Caller caller, ImportSnapshot request, InputStream data) throws IOException {
        caller.require(Scope.ADMIN);
        // Said before much has come rather than after.
        requireFree(caller.project(), request.name());
        SnapshotId id = SnapshotId.random();
        busy.add(id);
        try {
            NodeSnapshot taken =
                    node.importSnapshot(id, Map.of(PROJECT, caller.project().toString()), settings.trustedKeys(), data);
            return noted(caller, request, taken);
        } finally {
            busy.remove(id);
        }
    }

    private Snapshot noted(Caller caller, ImportSnapshot request, NodeSnapshot taken) {
        boolean noted = false;
        try {
            Snapshot imported = imported(caller, request, taken);
            insert(imported);
            noted = true;
            event(imported, "snapshot.imported", "");
            return imported;
        } finally {
            if (!noted) {
                CompletableFuture<Void> removed = removeFile(taken.id());
                assert removed != null;
            }
        }
    }

    /** Of the file only what it holds is believed: what a sandbox from it may do is decided here. */
    private Snapshot imported(Caller caller, ImportSnapshot request, NodeSnapshot taken) {
        Limits limits = settings.bounds().check(taken.limits());
        Instant now = clock.instant();
        Set<Language> seen = EnumSet.noneOf(Language.class);
        List<Snapshot.Held> contexts = taken.contexts().stream()
                .map(held -> new Snapshot.Held(held.id(), held.language(), seen.add(held.language()), "", Map.of()))
                .toList();
        return new Snapshot(
                taken.id(),
                caller.project(),
                request.name(),
                taken.kind(),
                Optional.empty(),
                template(caller, taken).id(),
                template(caller, taken).version(),
                Optional.empty(),
                limits,
                Map.of(),
                contexts,
                request.labels(),
                SnapshotState.READY,
                taken.sizeBytes(),
                taken.stopped(),
                now,
                expiry(Optional.empty(), now),
                "");
    }

    private Template template(Caller caller, NodeSnapshot taken) {
        return templates.visible(caller.project()).stream()
                .filter(template -> templates
                        .image(template)
                        .filter(image -> image.digest().equals(taken.imageDigest()))
                        .isPresent())
                .findFirst()
                .orElseThrow(() -> new AtollException(
                        ErrorCode.SNAPSHOT_UNUSABLE,
                        "snapshot: it is of image " + taken.imageDigest() + " (expected: that of a template of today)",
                        "No template that this project sees has that image.",
                        "Import it into an installation with the same images."));
    }

    // Records.

    private Snapshot owned(Caller caller, SnapshotId id) {
        return store.snapshot(id)
                .filter(snapshot -> snapshot.project().equals(caller.project()))
                .orElseThrow(() -> notFound(id));
    }

    private static AtollException notFound(SnapshotId id) {
        return new AtollException(
                ErrorCode.SNAPSHOT_NOT_FOUND,
                "snapshot: " + id + " was not found",
                "There is none of that id in this project, or it was deleted or has expired.",
                "GET /v1/snapshots lists those that are there.");
    }

    private static AtollException stillBeingMade(SnapshotId id) {
        return new AtollException(
                ErrorCode.CONFLICT, "snapshot: " + id + " is still being made", "", "Wait for the call that makes it.");
    }

    /** One whose file is on the node. */
    private Snapshot present(Caller caller, SnapshotId id) {
        Snapshot there = owned(caller, id);
        return switch (there.state()) {
            case READY -> there;
            case CREATING -> throw stillBeingMade(id);
            case LOST -> throw unusable(id, there.detail());
        };
    }

    /** One that can be restored. */
    private Snapshot usable(Caller caller, SnapshotId id) {
        Snapshot there = present(caller, id);
        Optional.ofNullable(unusable.get(id)).ifPresent(why -> {
            throw unusable(id, why);
        });
        return there;
    }

    private static AtollException unusable(SnapshotId id, String why) {
        return new AtollException(
                ErrorCode.SNAPSHOT_UNUSABLE,
                "snapshot: " + id + " can't be used: " + why,
                why,
                "Use another snapshot; what this one held can't be brought back here.");
    }

    /** With why the node can't restore it, if it can't. */
    private Snapshot seen(Snapshot stored) {
        return stored.state() == SnapshotState.READY
                ? stored.described(unusable.getOrDefault(stored.id(), ""))
                : stored;
    }

    private void insert(Snapshot snapshot) {
        records.lock();
        try {
            requireFree(snapshot.project(), snapshot.name());
            store.insertSnapshot(snapshot);
            expiresSooner(snapshot);
        } finally {
            records.unlock();
        }
    }

    private void requireFree(ProjectId project, Optional<String> name) {
        name.flatMap(text -> store.snapshotByName(project, text)).ifPresent(there -> {
            throw new AtollException(
                    ErrorCode.CONFLICT,
                    "name: \"" + name.get() + "\" belongs to snapshot " + there.id(),
                    "Names are unique among the snapshots of a project.",
                    "Delete that snapshot, or choose another name.");
        });
    }

    private Snapshot update(SnapshotId id, UnaryOperator<Snapshot> change) {
        records.lock();
        try {
            Snapshot changed = change.apply(store.snapshot(id).orElseThrow(() -> notFound(id)));
            store.updateSnapshot(changed);
            expiresSooner(changed);
            return changed;
        } finally {
            records.unlock();
        }
    }

    @GuardedBy("records")
    private void expiresSooner(Snapshot snapshot) {
        if (snapshot.expiresAt().filter(nextExpiry::isAfter).isPresent()) {
            nextExpiry = snapshot.expiresAt().get();
        }
    }

    private void event(Snapshot snapshot, String kind, String detail) {
        store.appendEventLater(new Event(
                0, snapshot.project(), clock.instant(), kind, snapshot.id().toString(), detail));
    }

    // What happens by itself.

    /** Removes those that have expired, until its thread is interrupted. */
    public void run() {
        while (!Thread.currentThread().isInterrupted()) {
            try {
                Thread.sleep(SWEEP_PERIOD);
                sweep();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            } catch (RuntimeException e) {
                LOG.log(System.Logger.Level.WARNING, "snapshots that have expired could not be removed yet", e);
            }
        }
    }

    /** Removes those that have expired, now; reads the store only if one can have. */
    public void sweep() {
        Instant now = clock.instant();
        List<Snapshot> expired = new ArrayList<>();
        records.lock();
        try {
            if (now.isBefore(nextExpiry)) {
                return;
            }
            nextExpiry = Instant.MAX;
            for (Snapshot snapshot : store.liveSnapshots()) {
                boolean over =
                        snapshot.expiresAt().filter(at -> !at.isAfter(now)).isPresent();
                if (over && !busy.contains(snapshot.id())) {
                    expired.add(snapshot);
                } else {
                    expiresSooner(snapshot);
                }
            }
        } finally {
            records.unlock();
        }
        for (Snapshot snapshot : expired) {
            CompletableFuture<Void> removed = remove(snapshot, "It has expired.");
            assert removed != null;
        }
    }

    /**
     * Compares the records with what the node has, after sandboxes and boxes were compared: finishes or undoes what a crash cut off.
     * Files that nobody has on record are removed, records whose file is gone say so.
     */
    public void reconcile(Forking forks) {
        // Read before the node is asked: one that is finished in between is not in the list.
        List<Snapshot> known = store.liveSnapshots();
        // And one that is being made now may be finished, and nobody's business any more, when the node has answered.
        Set<SnapshotId> making = Set.copyOf(busy);
        Map<SnapshotId, NodeSnapshot> there = new HashMap<>();
        node.snapshots().stream()
                .filter(snapshot -> !Pools.owns(snapshot))
                .forEach(snapshot -> there.put(snapshot.id(), snapshot));
        Map<SnapshotId, String> broken = new HashMap<>();
        there.forEach((id, snapshot) -> snapshot.unusable().ifPresent(why -> broken.put(id, why)));
        unusable = Map.copyOf(broken);
        there.values().forEach(snapshot -> found(snapshot, forks));
        for (Snapshot snapshot : known) {
            if (!there.containsKey(snapshot.id()) && !making.contains(snapshot.id()) && !busy.contains(snapshot.id())) {
                missing(snapshot);
            }
        }
    }

    private void found(NodeSnapshot file, Forking forks) {
        if (busy.contains(file.id()) || forks.isBusyWith(file.id())) {
            return;
        }
        Optional<Snapshot> record = store.snapshot(file.id());
        if (record.isEmpty()) {
            forks.undoLeftOver(file);
            LOG.log(System.Logger.Level.INFO, "snapshot " + file.id() + " is on no record, and is removed");
            CompletableFuture<Void> removed = removeFile(file.id());
            assert removed != null;
        } else if (record.get().state() != SnapshotState.READY) {
            // It was finished when the server died, or its disk is there again.
            Snapshot ready = update(file.id(), snapshot -> back(snapshot, file));
            event(ready, "snapshot.found", "");
        }
    }

    private Snapshot back(Snapshot snapshot, NodeSnapshot file) {
        boolean taken = snapshot.name()
                .flatMap(name -> store.snapshotByName(snapshot.project(), name))
                .filter(other -> !other.id().equals(snapshot.id()))
                .isPresent();
        Snapshot own = taken ? snapshot.revised(Optional.empty(), snapshot.labels(), snapshot.expiresAt()) : snapshot;
        return holding(own, file).ready(file.sizeBytes(), file.stopped());
    }

    private void missing(Snapshot snapshot) {
        if (snapshot.state() == SnapshotState.CREATING) {
            store.removeSnapshot(snapshot.id());
        } else if (store.snapshot(snapshot.id()).isPresent()) {
            Snapshot lost = update(
                    snapshot.id(),
                    there -> there.lost("Its file was not on the node any more: someone removed it, or it is on a disk"
                            + " that is not there."));
            event(lost, "snapshot.lost", "");
        }
    }
}
