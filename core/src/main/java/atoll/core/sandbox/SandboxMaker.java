package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Metrics;
import atoll.core.RunId;
import atoll.core.SandboxId;
import atoll.core.node.Box;
import atoll.core.node.BoxAssignment;
import atoll.core.node.ContextSpec;
import atoll.core.node.Node;
import atoll.core.node.RestoreBox;
import atoll.core.pool.Pools;
import atoll.core.pool.Taken;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.store.Store;
import atoll.core.template.Template;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;

/**
 * Makes sandboxes: of boxes from a pool, or of snapshots. The record comes first, then the node; what fails on the way is undone, and a
 * crash in between is undone or finished on the next start.
 */
final class SandboxMaker {
    private final Store store;
    private final Node node;
    private final LiveSandboxes live;
    private final Records records;
    private final Pools pools;
    private final LifecycleService.Prepared prepared;
    private final InstantSource clock;
    private final Metrics metrics;

    SandboxMaker(
            Store store,
            Node node,
            LiveSandboxes live,
            Records records,
            Pools pools,
            LifecycleService.Prepared prepared,
            InstantSource clock,
            Metrics metrics) {
        this.store = store;
        this.node = node;
        this.live = live;
        this.records = records;
        this.pools = pools;
        this.prepared = prepared;
        this.clock = clock;
        this.metrics = metrics;
    }

    /** One from the pool if it has a box, else as soon as one is started; a second try has another id. */
    LiveSandbox take(NewSandbox wanted, Template template, int mostTries) throws InterruptedException {
        long began = System.nanoTime();
        NewSandbox now = wanted;
        for (int tries = 1; ; tries++, now = wanted.as(SandboxId.random())) {
            try (Room room = live.reserve(wanted.project(), 1)) {
                Taken taken = wanted.limits().assignableFrom(template.limits())
                        ? pools.take(template)
                        : pools.start(template, wanted.limits());
                try {
                    LiveSandbox made = assign(now, template, taken.box(), room);
                    metrics.sandboxTaken(template.id(), taken.from(), Duration.ofNanos(System.nanoTime() - began));
                    return made;
                } catch (AtollException e) {
                    // The box died while it waited in the pool: that is no reason for the caller to see an error.
                    boolean boxGone = e.code() == ErrorCode.NOT_FOUND || e.code() == ErrorCode.CONFLICT;
                    if (!boxGone || tries == mostTries) {
                        throw e;
                    }
                } finally {
                    pools.handedOver(taken.box().id());
                }
            }
        }
    }

    private LiveSandbox assign(NewSandbox wanted, Template template, Box box, Room room) {
        Sandbox creating = creating(wanted, template.id(), template.version(), box.id(), Optional.empty());
        // Those of a box that was restored came with its snapshot.
        List<Context> warm = box.contexts().stream()
                .limit(1)
                .map(held -> new Context(
                        held.id(), wanted.project(), wanted.id(), held.language(), true, creating.createdAt()))
                .toList();
        return make(creating, room, Run.How.START, warm, () -> node.assignBox(box.id(), assignment(creating)));
    }

    /** One that is a copy. Its contexts have new ids; those of the original stay good for addressing them. */
    LiveSandbox restore(NewSandbox wanted, Source source, Room room) {
        Sandbox creating = creating(
                wanted, source.template(), source.templateVersion(), BoxId.random(), Optional.of(source.origin()));
        List<Context> contexts = new ArrayList<>();
        Map<ContextId, ContextId> renamed = new HashMap<>();
        for (Snapshot.Held held : source.contexts()) {
            Context copy = new Context(
                    ContextId.random(),
                    wanted.project(),
                    wanted.id(),
                    held.language(),
                    held.isDefault(),
                    held.cwd(),
                    held.env(),
                    Optional.of(held.id()),
                    creating.createdAt());
            contexts.add(copy);
            renamed.put(held.id(), copy.id());
        }
        boolean files = source.kind() == SnapshotKind.FILES;
        List<ContextSpec> opened =
                files ? contexts.stream().map(ContextOpener::spec).toList() : List.of();
        return make(creating, room, source.how(), contexts, () -> {
            Optional<BoxId> lent = prepared.lend(creating);
            try {
                return node.restoreBox(
                        creating.box(),
                        new RestoreBox(
                                source.snapshot(),
                                source.pausedBox(),
                                lent,
                                Optional.of(assignment(creating)),
                                files ? Map.of() : renamed,
                                opened,
                                Map.of(),
                                Optional.of(wanted.limits())));
            } finally {
                lent.ifPresent(prepared::used);
            }
        });
    }

    private Sandbox creating(
            NewSandbox wanted, String template, int version, BoxId box, Optional<Sandbox.Origin> origin) {
        Instant now = clock.instant();
        return new Sandbox(
                wanted.id(),
                wanted.project(),
                template,
                version,
                SandboxState.CREATING,
                wanted.limits(),
                wanted.labels(),
                box,
                RunId.random(),
                wanted.main(),
                wanted.name(),
                wanted.env(),
                wanted.lifecycle(),
                new Sandbox.Times(wanted.lifecycle().lifetime().map(now::plus), Optional.empty(), now),
                Optional.empty(),
                origin,
                now,
                Optional.empty());
    }

    private static BoxAssignment assignment(Sandbox creating) {
        return new BoxAssignment(
                creating.id(),
                creating.id().toString(),
                creating.env(),
                creating.limits(),
                LifecycleService.deadline(creating));
    }

    private LiveSandbox make(Sandbox creating, Room room, Run.How how, List<Context> contexts, Supplier<Box> body) {
        LiveSandbox made = new LiveSandbox(creating);
        made.mainPending = creating.main().isPresent();
        made.underConstruction = true;
        contexts.forEach(made::add);
        live.add(made, room);
        try {
            store.insertSandbox(creating, Run.first(creating, how), contexts);
            started(made, body.get());
        } catch (RuntimeException e) {
            undo(made, "It could not be started: " + e.getMessage());
            throw e;
        }
        made.underConstruction = false;
        return made;
    }

    private void started(LiveSandbox made, Box assigned) {
        made.writer.lock();
        try {
            if (made.sandbox().state() != SandboxState.CREATING) {
                throw Records.ended(made.sandbox());
            }
            assert assigned.sandboxId().equals(Optional.of(made.id()));
            made.becomes(made.sandbox().running());
            // Its box carries the sandbox's id now, so a lost write is made up for on the next start.
            store.updateSandboxLater(made.sandbox());
        } finally {
            made.writer.unlock();
        }
        records.event(made.sandbox(), "sandbox.started", "");
    }

    void undo(LiveSandbox made, String why) {
        records.endAndRemove(made, EndReason.START_FAILED, why);
    }
}
