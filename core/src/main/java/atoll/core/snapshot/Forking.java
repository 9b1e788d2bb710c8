package atoll.core.snapshot;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.Settings;
import atoll.core.SnapshotId;
import atoll.core.node.Node;
import atoll.core.node.NodeSnapshot;
import atoll.core.sandbox.ForkSandbox;
import atoll.core.sandbox.Forks;
import atoll.core.sandbox.Lifecycle;
import atoll.core.sandbox.LiveSandbox;
import atoll.core.sandbox.NewSandbox;
import atoll.core.sandbox.Room;
import atoll.core.sandbox.Run;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxService;
import atoll.core.sandbox.Source;
import atoll.core.store.IdempotencyClaim;
import atoll.core.store.OnceByKey;
import atoll.core.store.Store;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Copies sandboxes: a snapshot for the copies alone, as many restores of it as were asked for, and the snapshot goes. The source stands
 * still for the snapshot only, and it is locked for no longer.
 *
 * <p>All copies are made or none, whatever fails in between. After a crash it depends on whether the outcome was put on record, which is
 * done by a claim that only one value can have: {@code done}, before the caller gets its answer, or {@code undone}, when a snapshot of a
 * fork is found that nobody is busy with, or when the same request comes again. The ids of copies follow from the request's idempotency
 * key and the number of the try, so that a request that comes again finds what became of its earlier tries.
 */
public final class Forking implements Forks {
    private static final System.Logger LOG = System.getLogger(Forking.class.getName());
    private static final String OPERATION = "fork_sandbox";
    private static final String OUTCOME = "fork_outcome";
    private static final String DONE = "done";
    private static final String UNDONE = "undone";
    /** The labels of the snapshots that are made here: their project, and the try that they were made for. */
    private static final String PROJECT = "atoll.fork.project";

    private static final String TRY = "atoll.fork.try";

    /** How often a request is tried again that crashes cut off. */
    private static final int MOST_TRIES = 100;

    private final SandboxService sandboxes;
    private final SnapshotService snapshots;
    private final Store store;
    private final Node node;
    private final Settings settings;
    private final InstantSource clock;
    private final OnceByKey once = new OnceByKey();
    /** Restores at the same time, over all forks: more would only make each of them slower. */
    private final Semaphore restores;

    private final Set<SnapshotId> busy = ConcurrentHashMap.newKeySet();

    public Forking(
            SandboxService sandboxes,
            SnapshotService snapshots,
            Store store,
            Node node,
            Settings settings,
            InstantSource clock) {
        this.sandboxes = sandboxes;
        this.snapshots = snapshots;
        this.store = store;
        this.node = node;
        this.settings = settings;
        this.clock = clock;
        this.restores = new Semaphore(Runtime.getRuntime().availableProcessors() + 1, true);
    }

    @Override
    public List<Sandbox> fork(Caller caller, SandboxId id, ForkSandbox request) throws InterruptedException {
        caller.require(Scope.EXECUTE);
        if (request.idempotencyKey().isEmpty()) {
            return make(caller, id, request, new Try(UUID.randomUUID().toString(), 0, request.count()));
        }
        try (OnceByKey.Turn turn =
                once.begin(caller.project(), request.idempotencyKey().get())) {
            List<Object> parts = new ArrayList<>(request.parts());
            parts.add(id);
            String base = turn.claim(store, OPERATION, parts, UUID.randomUUID().toString(), clock.instant());
            for (int number = 0; number < MOST_TRIES; number++) {
                Try tried = new Try(base, number, request.count());
                List<Sandbox> there = tried.copies().stream()
                        .flatMap(copy -> sandboxes.find(copy).stream())
                        .toList();
                if (there.isEmpty()) {
                    return make(caller, id, request, tried);
                }
                if (outcome(caller.project(), tried.key(), UNDONE).equals(DONE)) {
                    return there;
                }
            }
            throw AtollException.internal("fork: " + MOST_TRIES + " tries were cut off", null);
        }
    }

    /** The ids of one try of one request. */
    private record Try(String base, int number, int count) {
        String key() {
            return base + "/" + number;
        }

        List<SandboxId> copies() {
            return IntStream.range(0, count)
                    .mapToObj(i -> new SandboxId(id("copy " + i)))
                    .toList();
        }

        /** A random id, so to speak: base is one, and nobody can tell what SHA-256 makes of it. */
        private UUID id(String what) {
            String text = key() + "\n" + what;
            try {
                ByteBuffer hash = ByteBuffer.wrap(
                        MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8)));
                long high = (hash.getLong() & ~0xf000L) | 0x4000L;
                long low = (hash.getLong() & ~(3L << 62)) | (1L << 63);
                return new UUID(high, low);
            } catch (NoSuchAlgorithmException e) {
                throw new IllegalStateException("every Java platform has SHA-256", e);
            }
        }
    }

    /** What became of a try: what was said first. */
    private String outcome(ProjectId project, String of, String ifUnknown) {
        return store.claim(project, new IdempotencyClaim(OUTCOME, of, "", ifUnknown), clock.instant())
                .resultId();
    }

    private List<Sandbox> make(Caller caller, SandboxId id, ForkSandbox request, Try now) throws InterruptedException {
        LiveSandbox source = sandboxes.requireLive(caller, id);
        try (Room room = sandboxes.reserve(caller, request.count())) {
            return make(caller, source, request, now, room);
        }
    }

    private List<Sandbox> make(Caller caller, LiveSandbox source, ForkSandbox request, Try now, Room room)
            throws InterruptedException {
        Lifecycle lifecycle = settings.lives().agree(source.sandbox().lifecycle(), request.lifecycle());
        SnapshotId image = SnapshotId.random();
        busy.add(image);
        try {
            Source from = image(source, image, now);
            List<NewSandbox> wanted = now.copies().stream()
                    .map(copy -> wanted(copy, source.sandbox(), request, lifecycle))
                    .toList();
            List<LiveSandbox> made = makeAll(wanted, from, room);
            if (!outcome(caller.project(), now.key(), DONE).equals(DONE)) {
                undo(made, "The fork that it was made by had been given up.");
                throw AtollException.internal("fork: snapshot " + image + " belongs to a fork that was given up", null);
            }
            return made.stream().map(LiveSandbox::sandbox).toList();
        } finally {
            busy.remove(image);
            CompletableFuture<Void> removed = snapshots.removeFile(image);
            assert removed != null;
        }
    }

    private Source image(LiveSandbox source, SnapshotId id, Try made) throws InterruptedException {
        source.lifecycle().lockInterruptibly();
        try {
            snapshots.requireStill(source);
            Sandbox now = source.sandbox();
            List<Snapshot.Held> known = Source.held(source);
            NodeSnapshot image = node.createSnapshot(
                    source.box(),
                    id,
                    SnapshotKind.MEMORY,
                    Map.of(PROJECT, now.project().toString(), TRY, made.key()));
            return new Source(
                    Run.How.FORK,
                    now.template(),
                    now.templateVersion(),
                    now.limits(),
                    now.env(),
                    SnapshotKind.MEMORY,
                    SnapshotService.held(known, image),
                    Optional.of(id),
                    Optional.empty(),
                    new Sandbox.Origin(Optional.of(now.id()), Optional.of(id)));
        } catch (AtollException e) {
            throw sandboxes.translated(source, e);
        } finally {
            source.lifecycle().unlock();
        }
    }

    private static NewSandbox wanted(SandboxId id, Sandbox source, ForkSandbox request, Lifecycle lifecycle) {
        Map<String, String> env = new HashMap<>(source.env());
        env.putAll(request.env());
        Map<String, String> labels = new HashMap<>(source.labels());
        labels.putAll(request.labels());
        return new NewSandbox(
                id, source.project(), source.limits(), env, labels, Optional.empty(), request.name(), lifecycle);
    }

    /** All of them, or the reason of the first failure; those that were made until then have ended. */
    private List<LiveSandbox> makeAll(List<NewSandbox> wanted, Source from, Room room) throws InterruptedException {
        Made all = new Made(wanted.size());
        CountDownLatch left = new CountDownLatch(wanted.size());
        for (int i = 0; i < wanted.size(); i++) {
            int place = i;
            Thread maker = Thread.ofVirtual().name("fork").unstarted(() -> {
                try {
                    make(wanted.get(place), from, room, place, all);
                } finally {
                    left.countDown();
                }
            });
            maker.start();
        }
        try {
            left.await();
        } catch (InterruptedException e) {
            all.fail(interrupted());
            awaitAll(left);
            undo(all.made(), "The call that asked for it was given up.");
            throw e;
        }
        RuntimeException failure = all.failure();
        if (failure != null) {
            undo(all.made(), "Another copy of the same call could not be made: " + failure.getMessage());
            throw failure;
        }
        return all.made();
    }

    private void make(NewSandbox wanted, Source from, Room room, int place, Made all) {
        restores.acquireUninterruptibly();
        try {
            if (all.failure() == null) {
                all.put(place, sandboxes.makeFrom(wanted, from, room));
            }
        } catch (AtollException e) {
            all.fail(new AtollException(
                    e.code(),
                    "fork: copy " + (place + 1) + " of " + all.count() + " could not be made, so none was: "
                            + e.message(),
                    e.reason(),
                    e.remediation(),
                    e));
        } catch (RuntimeException e) {
            all.fail(AtollException.internal("fork: copy " + (place + 1) + " could not be made, so none was", e));
        } finally {
            restores.release();
        }
    }

    /** What has come of the copies so far. */
    private static final class Made {
        private final LiveSandbox[] copies;
        private final AtomicReference<@Nullable RuntimeException> failure = new AtomicReference<>();

        Made(int count) {
            copies = new LiveSandbox[count];
        }

        int count() {
            return copies.length;
        }

        synchronized void put(int place, LiveSandbox copy) {
            copies[place] = copy;
        }

        synchronized List<LiveSandbox> made() {
            List<LiveSandbox> made = new ArrayList<>();
            for (LiveSandbox copy : copies) {
                if (copy != null) {
                    made.add(copy);
                }
            }
            return made;
        }

        void fail(RuntimeException how) {
            boolean first = failure.compareAndSet(null, how);
            LOG.log(System.Logger.Level.DEBUG, "a copy failed, the first one: " + first, how);
        }

        @Nullable
        RuntimeException failure() {
            return failure.get();
        }
    }

    private static AtollException interrupted() {
        return new AtollException(
                ErrorCode.SHUTTING_DOWN, "The call was given up.", "", "Make it again if it is still wanted.");
    }

    /** A call to the node can't be taken back: what it made is known once it has returned. */
    private static void awaitAll(CountDownLatch left) {
        boolean waiting = true;
        while (waiting) {
            try {
                left.await();
                waiting = false;
            } catch (InterruptedException e) {
                LOG.log(System.Logger.Level.DEBUG, "still waiting for " + left.getCount() + " copies");
            }
        }
    }

    private void undo(List<LiveSandbox> made, String why) {
        made.forEach(copy -> sandboxes.undo(copy, why));
    }

    boolean isBusyWith(SnapshotId id) {
        return busy.contains(id);
    }

    /** A snapshot was found that may be one of a fork that a crash cut off: then its copies end, unless all were there. */
    void undoLeftOver(NodeSnapshot file) {
        String project = file.labels().get(PROJECT);
        String tried = file.labels().get(TRY);
        List<LiveSandbox> copies = sandboxes.live().stream()
                .filter(alive -> alive.sandbox()
                        .origin()
                        .flatMap(Sandbox.Origin::snapshot)
                        .equals(Optional.of(file.id())))
                .toList();
        if (project == null
                || tried == null
                || copies.isEmpty()
                || outcome(new ProjectId(project), tried, UNDONE).equals(DONE)) {
            return;
        }
        undo(copies, "The server was restarted before all copies of the call were made.");
    }
}
