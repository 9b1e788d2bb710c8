package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Metrics;
import atoll.core.RunId;
import atoll.core.Settings;
import atoll.core.SnapshotId;
import atoll.core.node.Box;
import atoll.core.node.BoxAssignment;
import atoll.core.node.BoxState;
import atoll.core.node.NodeSnapshot;
import atoll.core.node.PatientNode;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.store.Store;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;

/**
 * Pauses, resumes and rolls back. Each is done with the sandbox's lifecycle lock held, and its intent is stored before the node is asked.
 * Where its outcome is not known (the node went away, the store failed, this server died) the sandbox stays {@code PAUSING} or
 * {@code RESUMING} on record, and whoever takes the lock next settles that first, by what its box is: a caller who needs it, or the
 * comparison of store and node after a (re)connection.
 */
final class LifecycleService {
    private static final System.Logger LOG = System.getLogger(LifecycleService.class.getName());

    private final Store store;
    private final PatientNode node;
    private final LiveSandboxes live;
    private final Records records;
    private final Prepared prepared;
    private final Settings.Lives lives;
    private final InstantSource clock;
    private final Metrics metrics;
    private final Executor background;
    private volatile Consumer<LiveSandbox> resumedListener = _ -> {};

    /** Lends boxes that are made and have nothing in them, so that a resume need not wait for one. */
    interface Prepared {
        Optional<BoxId> lend(Sandbox sandbox);

        /** It was used, or can't be any more. */
        void used(BoxId box);
    }

    LifecycleService(
            Store store,
            PatientNode node,
            LiveSandboxes live,
            Records records,
            Prepared prepared,
            Settings.Lives lives,
            InstantSource clock,
            Metrics metrics,
            Executor background) {
        this.store = store;
        this.node = node;
        this.live = live;
        this.records = records;
        this.prepared = prepared;
        this.lives = lives;
        this.clock = clock;
        this.metrics = metrics;
        this.background = background;
    }

    /** Has {@code listener} told of each sandbox that runs again, on the thread that resumed it. */
    void onResumed(Consumer<LiveSandbox> listener) {
        resumedListener = listener;
    }

    Sandbox pause(LiveSandbox alive, SnapshotKind keep) {
        alive.lifecycle().lock();
        try {
            return pauseLocked(alive, keep);
        } finally {
            alive.lifecycle().unlock();
        }
    }

    /** The same if it is {@code due} still once nobody else is at it. */
    void pauseIf(LiveSandbox alive, BooleanSupplier due) {
        alive.lifecycle().lock();
        try {
            if (due.getAsBoolean()) {
                Sandbox paused = pauseLocked(alive, SnapshotKind.MEMORY);
                assert paused.state() == SandboxState.PAUSED;
            }
        } finally {
            alive.lifecycle().unlock();
        }
    }

    private Sandbox pauseLocked(LiveSandbox alive, SnapshotKind keep) {
        settle(alive);
        switch (alive.sandbox().state()) {
            case CREATING -> throw Records.stillMade(alive.sandbox());
            case ENDED -> throw Records.ended(alive.sandbox());
            case PAUSED -> {
                return alive.seen();
            }
            case PAUSING, RESUMING -> throw open(alive);
            case RUNNING -> {}
        }
        SnapshotId image = SnapshotId.random();
        Sandbox pausing = records.step(alive, s -> s.pausing(image));
        try {
            Box box = timed("pause", () -> node.pauseBox(pausing.box(), image, keep));
            assert box.id().equals(pausing.box());
        } catch (AtollException e) {
            settleAfter(alive, e);
            return switch (alive.sandbox().state()) {
                case PAUSED -> alive.seen();
                case ENDED -> throw Records.ended(alive.sandbox());
                case CREATING, RUNNING, PAUSING, RESUMING -> throw e;
            };
        }
        return becamePaused(alive, Optional.of(keep));
    }

    Sandbox resume(LiveSandbox alive, Optional<Term> lifetime) {
        lifetime.ifPresent(this::check);
        alive.lifecycle().lock();
        try {
            settle(alive);
            if (lifetime.isPresent()) {
                Sandbox agreed = extend(alive, lifetime.get());
                assert agreed.lifecycle().lifetime().equals(lifetime.get().length());
            }
            return resumeLocked(alive);
        } finally {
            alive.lifecycle().unlock();
        }
    }

    private void check(Term lifetime) {
        Optional<?> checked = lives.checkLifetime(lifetime);
        assert checked.equals(lifetime.length());
    }

    private Sandbox resumeLocked(LiveSandbox alive) {
        switch (alive.sandbox().state()) {
            case CREATING -> throw Records.stillMade(alive.sandbox());
            case ENDED -> throw Records.ended(alive.sandbox());
            case RUNNING -> {
                return alive.seen();
            }
            case PAUSING, RESUMING -> throw open(alive);
            case PAUSED -> {}
        }
        Sandbox resuming;
        try (Room room = live.reserve(alive.sandbox().project(), 1)) {
            resuming = records.step(alive, Sandbox::resuming);
            assert room.left() == 1;
        }
        try {
            Box box = timed(
                    "resume", () -> lent(resuming, lent -> node.resumeBox(resuming.box(), lent, assignment(alive))));
            assert box.id().equals(resuming.box());
        } catch (AtollException e) {
            settleAfter(alive, e);
            return switch (alive.sandbox().state()) {
                case RUNNING -> alive.seen();
                case ENDED -> throw Records.ended(alive.sandbox());
                case CREATING, PAUSED, PAUSING, RESUMING -> throw e;
            };
        }
        return becameRunning(alive, Run.How.RESUME);
    }

    private Box timed(String step, Supplier<Box> work) {
        long began = System.nanoTime();
        boolean succeeded = false;
        try {
            Box box = work.get();
            succeeded = true;
            return box;
        } finally {
            metrics.lifeStep(step, succeeded, Duration.ofNanos(System.nanoTime() - began));
        }
    }

    private Box lent(Sandbox sandbox, Function<Optional<BoxId>, Box> work) {
        Optional<BoxId> lent = prepared.lend(sandbox);
        try {
            return work.apply(lent);
        } finally {
            lent.ifPresent(prepared::used);
        }
    }

    /** What the node is to give its box: the record decides, whatever was in it when it was written. */
    private BoxAssignment assignment(LiveSandbox alive) {
        Sandbox sandbox = alive.sandbox();
        Instant now = clock.instant();
        Optional<Instant> expiresAt = sandbox.lifecycle().lifetime().map(now::plus);
        return new BoxAssignment(
                sandbox.id(),
                sandbox.id().toString(),
                sandbox.env(),
                sandbox.limits(),
                deadline(sandbox.agreed(sandbox.lifecycle(), expiresAt)));
    }

    /** When its box is to end by itself, should nobody be there to do it: only where its time's end is its own. */
    static Optional<Instant> deadline(Sandbox sandbox) {
        return sandbox.lifecycle().onTimeout() == OnTimeout.KILL ? sandbox.expiresAt() : Optional.empty();
    }

    /** Sees to it that a sandbox runs that is about to be used; fails if it is paused and not to be resumed by use. */
    void resumeForUse(LiveSandbox alive) {
        alive.touch(clock.instant());
        Sandbox now = alive.sandbox();
        if (now.state() == SandboxState.RUNNING) {
            return;
        }
        if (now.state() == SandboxState.PAUSED && !now.lifecycle().autoResume()) {
            throw Records.paused(now);
        }
        alive.lifecycle().lock();
        try {
            settle(alive);
            resumeIfAgreed(alive);
        } finally {
            alive.lifecycle().unlock();
        }
    }

    /** The same for a call that has met the pause on the node; false if nobody knows whose box it is. */
    boolean resumeForUse(BoxId box) {
        Optional<LiveSandbox> found = live.ofBox(box);
        if (found.isEmpty() || found.get().sandbox().state() == SandboxState.CREATING) {
            return false;
        }
        LiveSandbox alive = found.get();
        alive.touch(clock.instant());
        alive.lifecycle().lock();
        try {
            settle(alive);
            if (alive.sandbox().state() == SandboxState.RUNNING) {
                compare(alive, node.box(box));
            }
            resumeIfAgreed(alive);
            return true;
        } finally {
            alive.lifecycle().unlock();
        }
    }

    private void resumeIfAgreed(LiveSandbox alive) {
        Sandbox now = alive.sandbox();
        if (now.state() == SandboxState.PAUSED && !now.lifecycle().autoResume()) {
            throw Records.paused(now);
        }
        Sandbox running = resumeLocked(alive);
        assert running.id().equals(alive.id());
    }

    /** Puts a running one back to a snapshot that was made of itself. */
    Sandbox rollback(LiveSandbox alive, Snapshot snapshot) {
        alive.lifecycle().lock();
        try {
            settle(alive);
            Sandbox running = resumeLocked(alive);
            assert running.state() == SandboxState.RUNNING;
            Sandbox going = records.step(alive, s -> s.rollingBack(snapshot.id()));
            try {
                rollBox(alive, going);
            } catch (AtollException e) {
                settleAfter(alive, e);
                if (alive.sandbox().state() == SandboxState.ENDED) {
                    throw Records.ended(alive.sandbox());
                }
                if (currentRun(alive).from().equals(Optional.of(snapshot.id()))
                        && !alive.sandbox().run().equals(going.run())) {
                    return alive.seen();
                }
                throw e;
            }
            return becameRolledBack(alive);
        } finally {
            alive.lifecycle().unlock();
        }
    }

    private void rollBox(LiveSandbox alive, Sandbox going) {
        SnapshotId target = going.pausedIn().orElseThrow();
        Box box = timed(
                "rollback", () -> lent(going, lent -> node.rollbackBox(going.box(), target, lent, assignment(alive))));
        assert box.id().equals(going.box());
    }

    /** How long it lives from now on. */
    Sandbox extend(LiveSandbox alive, Term lifetime) {
        check(lifetime);
        Instant now = clock.instant();
        return agree(
                alive,
                s -> s.agreed(
                        s.lifecycle().withLifetime(lifetime.length()),
                        s.state() == SandboxState.PAUSED
                                ? Optional.empty()
                                : lifetime.length().map(now::plus)));
    }

    /** Changes the agreement; its node is told in the background. */
    Sandbox agree(LiveSandbox alive, UnaryOperator<Sandbox> change) {
        Optional<Instant> before = deadline(alive.sandbox());
        Sandbox agreed = records.revise(alive, change);
        if (!deadline(agreed).equals(before)) {
            alive.deadlineOpen = true;
            background.execute(() -> tellDeadline(alive));
        }
        return agreed;
    }

    /** Tells the node when its lifetime is over, unless a pause or resume is under way, which does so itself. */
    void tellDeadline(LiveSandbox alive) {
        if (!alive.lifecycle().tryLock()) {
            return;
        }
        try {
            if (alive.deadlineOpen && alive.sandbox().state() == SandboxState.RUNNING) {
                Optional<Instant> deadline = deadline(alive.sandbox());
                node.setDeadline(alive.box(), deadline);
                alive.deadlineOpen = !deadline(alive.sandbox()).equals(deadline);
            }
        } catch (AtollException e) {
            LOG.log(
                    System.Logger.Level.DEBUG,
                    "the node does not know yet when sandbox " + alive.id() + " ends: " + e.getMessage());
        } finally {
            alive.lifecycle().unlock();
        }
    }

    // What became of it.

    /** After the node failed: by what the box is then. A node that is away leaves it open. */
    private void settleAfter(LiveSandbox alive, AtollException failure) {
        if (failure.code() == ErrorCode.NODE_UNAVAILABLE) {
            throw failure;
        }
        settle(alive);
    }

    /** Finishes or undoes what was left open, if something was. Requires: its lifecycle lock is held. */
    void settle(LiveSandbox alive) {
        SandboxState state = alive.sandbox().state();
        if (state == SandboxState.PAUSING || state == SandboxState.RESUMING) {
            compare(alive, node.box(alive.box()));
        }
    }

    /** After a (re)connection: whether what is on record of it and what its box is fit together; what does not is settled. */
    void reconcile(LiveSandbox alive, Box seen) {
        boolean fits = switch (alive.sandbox().state()) {
            case CREATING, ENDED -> true;
            case PAUSING, RESUMING -> false;
            case RUNNING -> seen.state() != BoxState.PAUSED;
            case PAUSED -> !runs(seen);
        };
        if (!fits) {
            background.execute(() -> settleAlone(alive));
        }
    }

    private void settleAlone(LiveSandbox alive) {
        if (!alive.lifecycle().tryLock()) {
            // Whoever has it settles it.
            return;
        }
        try {
            compare(alive, node.box(alive.box()));
        } catch (AtollException e) {
            LOG.log(
                    e.code() == ErrorCode.NODE_UNAVAILABLE ? System.Logger.Level.DEBUG : System.Logger.Level.WARNING,
                    "sandbox " + alive.id() + " stays " + alive.sandbox().state() + " for now: " + e.getMessage());
        } finally {
            alive.lifecycle().unlock();
        }
    }

    /** Settles it by what its box is, and waits for that while the node is still about it. */
    private void compare(LiveSandbox alive, Optional<Box> found) {
        Optional<Box> seen = found;
        long start = System.nanoTime();
        for (int tries = 0; ; tries++) {
            seen = seen.flatMap(box -> finished(alive, box));
            if (seen.isEmpty() || seen.get().state().isOver()) {
                boxEnded(alive, seen);
                return;
            }
            if (settled(alive, seen.get())) {
                return;
            }
            if (!node.pause(tries, start)) {
                node.requireOwned();
                throw open(alive);
            }
            seen = node.box(alive.box());
        }
    }

    /** The box, asked to finish what it is at if it is at something: nobody else waits for that on the node. */
    private Optional<Box> finished(LiveSandbox alive, Box box) {
        Sandbox now = alive.sandbox();
        return switch (now.state()) {
            case PAUSING ->
                box.state() == BoxState.PAUSING
                        ? asked(alive, () -> node.pauseBox(alive.box(), pausedIn(now)))
                        : Optional.of(box);
            case RESUMING -> {
                if (now.pausedAt().isPresent()) {
                    yield box.state() == BoxState.RESUMING
                            ? asked(alive, () -> node.resumeBox(alive.box(), Optional.empty(), assignment(alive)))
                            : Optional.of(box);
                }
                // A box that came from this snapshot before does not tell whether it was put back to it once more.
                boolean unclear = box.restoredFrom().equals(now.pausedIn())
                        && currentRun(alive).from().equals(now.pausedIn());
                yield box.state() == BoxState.RESUMING || unclear
                        ? asked(
                                alive,
                                () -> node.rollbackBox(alive.box(), pausedIn(now), Optional.empty(), assignment(alive)))
                        : Optional.of(box);
            }
            case CREATING, RUNNING, PAUSED, ENDED -> Optional.of(box);
        };
    }

    private static SnapshotId pausedIn(Sandbox sandbox) {
        return sandbox.pausedIn().orElseThrow();
    }

    /** The box after a call that finishes what it is at; if that fails, as it is then. */
    private Optional<Box> asked(LiveSandbox alive, Supplier<Box> call) {
        try {
            return Optional.of(call.get());
        } catch (AtollException e) {
            if (e.code() == ErrorCode.NODE_UNAVAILABLE) {
                throw e;
            }
            return node.box(alive.box());
        }
    }

    /** Whether the state of its box says what became of it, and that is on record now; false while the box is still on its way. */
    private boolean settled(LiveSandbox alive, Box box) {
        Sandbox now = alive.sandbox();
        boolean paused = box.state() == BoxState.PAUSED;
        return switch (now.state()) {
            case PAUSING -> {
                if (paused) {
                    yield isOf(alive, becamePaused(alive, box.pauseKind()));
                }
                yield runs(box) && isOf(alive, records.step(alive, Sandbox::runningOn));
            }
            case RESUMING -> {
                if (now.pausedAt().isEmpty()) {
                    yield runs(box) && isOf(alive, rolledBackOrNot(alive, box));
                }
                if (paused) {
                    yield isOf(alive, records.step(alive, Sandbox::stillPaused));
                }
                yield runs(box) && isOf(alive, becameRunning(alive, Run.How.RESUME));
            }
            case RUNNING -> {
                if (paused) {
                    SnapshotId image = box.pausedIn().orElseGet(SnapshotId::random);
                    Sandbox pausing = records.step(alive, s -> s.pausing(image));
                    yield isOf(alive, pausing) && isOf(alive, becamePaused(alive, box.pauseKind()));
                }
                yield true;
            }
            case PAUSED -> {
                if (runs(box)) {
                    Sandbox resuming = records.step(alive, Sandbox::resuming);
                    yield isOf(alive, resuming) && isOf(alive, becameRunning(alive, Run.How.RESUME));
                }
                yield true;
            }
            case CREATING, ENDED -> true;
        };
    }

    private static boolean isOf(LiveSandbox alive, Sandbox written) {
        return written.id().equals(alive.id());
    }

    private Sandbox rolledBackOrNot(LiveSandbox alive, Box box) {
        return box.restoredFrom().equals(alive.sandbox().pausedIn())
                ? becameRolledBack(alive)
                : records.step(alive, Sandbox::runningOn);
    }

    private static boolean runs(Box box) {
        return switch (box.state()) {
            case READY, RECONNECTING -> true;
            case CREATING, PREPARED, PAUSING, PAUSED, RESUMING, ENDED, DELETED -> false;
        };
    }

    private static AtollException open(LiveSandbox alive) {
        return new AtollException(
                ErrorCode.NODE_UNAVAILABLE,
                "sandbox: " + alive.id() + " is " + alive.sandbox().state().text() + ", and its node can't tell yet"
                        + " what came of it",
                "The node was restarted in the middle of it.",
                "Try again in a moment.");
    }

    private Sandbox becamePaused(LiveSandbox alive, Optional<SnapshotKind> kept) {
        String how = kept.equals(Optional.of(SnapshotKind.FILES)) ? "Its files alone were kept." : "";
        Instant now = clock.instant();
        Run over = currentRun(alive)
                .ended(new Run.End(Run.PAUSED, how, now, alive.sandbox().pausedIn()));
        Sandbox paused = stepOrRemove(alive, s -> s.paused(now), _ -> List.of(over));
        records.event(paused, "sandbox.paused", how);
        return paused;
    }

    private Sandbox becameRunning(LiveSandbox alive, Run.How how) {
        Sandbox running = begin(alive, how, Optional.empty());
        records.event(running, "sandbox.resumed", "");
        return running;
    }

    private Sandbox becameRolledBack(LiveSandbox alive) {
        SnapshotId target = alive.sandbox().pausedIn().orElseThrow();
        Run over = currentRun(alive)
                .ended(new Run.End(
                        Run.ROLLED_BACK, "Rolled back to snapshot " + target + ".", clock.instant(), Optional.empty()));
        takeContexts(alive, target);
        Sandbox running = begin(alive, Run.How.ROLLBACK, Optional.of(over));
        records.event(running, "sandbox.rolled_back", target.toString());
        return running;
    }

    private Sandbox begin(LiveSandbox alive, Run.How how, Optional<Run> over) {
        Instant now = clock.instant();
        RunId run = RunId.random();
        Optional<SnapshotId> from = alive.sandbox().pausedIn();
        alive.touch(now);
        Sandbox running = stepOrRemove(alive, s -> s.resumed(run, now), s -> {
            List<Run> runs = new ArrayList<>(over.stream().toList());
            runs.add(new Run(run, s.project(), s.id(), how, from, now, Optional.empty()));
            return runs;
        });
        resumedListener.accept(alive);
        return running;
    }

    /** What was deleted meanwhile may have got something on the node again. */
    private Sandbox stepOrRemove(LiveSandbox alive, UnaryOperator<Sandbox> next, Function<Sandbox, List<Run>> runs) {
        try {
            return records.step(alive, next, runs);
        } catch (AtollException e) {
            if (e.code() == ErrorCode.SANDBOX_ENDED) {
                var removed = records.removeBox(alive.box());
                assert removed != null;
            }
            throw e;
        }
    }

    private Run currentRun(LiveSandbox alive) {
        Sandbox now = alive.sandbox();
        return store.runs(now.id()).stream()
                .filter(run -> run.id().equals(now.run()))
                .findFirst()
                .orElseGet(() -> Run.first(now, Run.How.START));
    }

    /** The contexts of a sandbox that was put back are those of the snapshot: younger ones are gone, closed ones are there again. */
    private void takeContexts(LiveSandbox alive, SnapshotId target) {
        Set<ContextId> inside = node.box(alive.box()).stream()
                .flatMap(box -> box.contexts().stream())
                .map(NodeSnapshot.Held::id)
                .collect(Collectors.toSet());
        Set<ContextId> known = alive.contexts().stream().map(Context::id).collect(Collectors.toSet());
        Instant now = clock.instant();
        for (Context context : alive.contexts()) {
            if (!inside.contains(context.id())) {
                store.closeContextLater(context.id(), now);
                alive.remove(context);
            }
        }
        store.snapshot(target).stream()
                .flatMap(snapshot -> snapshot.contexts().stream())
                .filter(held -> inside.contains(held.id()) && !known.contains(held.id()))
                .forEach(held -> {
                    Context again = new Context(
                            held.id(),
                            alive.sandbox().project(),
                            alive.id(),
                            held.language(),
                            held.isDefault(),
                            held.cwd(),
                            held.env(),
                            now);
                    store.insertContextLater(again);
                    alive.add(again);
                });
    }

    /** The body of a live sandbox is gone: so is the sandbox. */
    void boxEnded(LiveSandbox sandbox, Optional<Box> box) {
        Optional<Box.End> how = box.flatMap(Box::end);
        Sandbox ended = records.end(
                sandbox,
                how.map(Box.End::reason).orElse(EndReason.LOST),
                how.map(Box.End::detail)
                        .filter(detail -> !detail.isBlank())
                        .orElse(
                                "Its body was not on the node any more: the machine was restarted, or someone removed it."),
                OptionalInt.empty());
        assert ended.state() == SandboxState.ENDED;
        if (box.isPresent()) {
            var removed = records.removeBox(sandbox.box());
            assert removed != null;
        }
    }
}
