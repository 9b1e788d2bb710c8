package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.Metrics;
import atoll.core.event.Event;
import atoll.core.node.Node;
import atoll.core.store.Store;
import java.time.InstantSource;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Function;
import java.util.function.UnaryOperator;

/** Takes sandboxes from one state on record to the next: stored first, then in memory, with the sandbox's writer held. */
final class Records {
    private final Store store;
    private final Node node;
    private final LiveSandboxes live;
    private final InstantSource clock;
    private final Metrics metrics;
    private final Executor background;

    Records(Store store, Node node, LiveSandboxes live, InstantSource clock, Metrics metrics, Executor background) {
        this.store = store;
        this.node = node;
        this.live = live;
        this.clock = clock;
        this.metrics = metrics;
        this.background = background;
    }

    /** Its next state, durable when this returns. Fails if it has ended. */
    Sandbox step(LiveSandbox alive, UnaryOperator<Sandbox> next) {
        return step(alive, next, _ -> List.of());
    }

    /** The same with the runs that begin or end with it. */
    Sandbox step(LiveSandbox alive, UnaryOperator<Sandbox> next, Function<Sandbox, List<Run>> runs) {
        alive.writer.lock();
        try {
            agreeWithStore(alive);
            requireLive(alive);
            Sandbox stepped = next.apply(alive.seen());
            List<Run> changed = runs.apply(stepped);
            write(alive, stepped, () -> store.updateSandbox(stepped, changed));
            return stepped;
        } finally {
            alive.writer.unlock();
        }
    }

    /** What callers may change, durable when this returns. Fails if it has ended. */
    Sandbox revise(LiveSandbox alive, UnaryOperator<Sandbox> change) {
        alive.writer.lock();
        try {
            agreeWithStore(alive);
            requireLive(alive);
            Sandbox revised = change.apply(alive.seen());
            write(alive, revised, () -> store.reviseSandbox(revised));
            return revised;
        } finally {
            alive.writer.unlock();
        }
    }

    /** Writes it, then it is so in memory. A write that failed may have been done all the same: the store is asked, now or the next time. */
    private void write(LiveSandbox alive, Sandbox next, Runnable work) {
        try {
            work.run();
        } catch (RuntimeException e) {
            alive.unsure = true;
            agreeWithStore(alive);
            if (!alive.sandbox().active(next.lastActiveAt()).equals(next)) {
                throw e;
            }
        }
        alive.becomes(next);
    }

    private void agreeWithStore(LiveSandbox alive) {
        if (alive.unsure) {
            Optional<Sandbox> stored = store.sandbox(alive.id());
            alive.unsure = false;
            stored.ifPresent(alive::becomes);
        }
    }

    /** Puts on record when it was used last, sometime. */
    void noteActive(LiveSandbox alive) {
        alive.writer.lock();
        try {
            if (alive.sandbox().state() != SandboxState.ENDED && !alive.unsure) {
                alive.becomes(alive.seen());
                store.updateSandboxLater(alive.sandbox());
            }
        } finally {
            alive.writer.unlock();
        }
    }

    private static void requireLive(LiveSandbox alive) {
        if (alive.sandbox().state() == SandboxState.ENDED) {
            throw ended(alive.sandbox());
        }
    }

    /** Takes it to its end, once; returns it as it ended. */
    Sandbox end(LiveSandbox alive, EndReason reason, String detail, OptionalInt exitCode) {
        alive.writer.lock();
        try {
            agreeWithStore(alive);
            if (alive.sandbox().state() == SandboxState.ENDED) {
                live.remove(alive);
                return alive.sandbox();
            }
            Sandbox ended = alive.seen().ended(new Sandbox.End(reason, detail, clock.instant(), exitCode));
            write(alive, ended, () -> store.updateSandbox(ended));
            live.remove(alive);
        } finally {
            alive.writer.unlock();
        }
        metrics.sandboxEnded(alive.sandbox().template(), reason.text());
        event(alive.sandbox(), "sandbox.ended", reason.text());
        return alive.sandbox();
    }

    /** The same with what it has on the node, which goes in the background. */
    void endAndRemove(LiveSandbox alive, EndReason reason, String detail) {
        Sandbox ended = end(alive, reason, detail, OptionalInt.empty());
        assert ended.end().isPresent();
        CompletableFuture<Void> removed = removeBox(alive.box());
        assert removed != null;
    }

    /** Has the node remove a box, trying again for as long as the node is away. */
    CompletableFuture<Void> removeBox(BoxId box) {
        return CompletableFuture.runAsync(() -> node.deleteBox(box), background);
    }

    /** Never fails: what it tells of has happened, and who made it happen has more to do. */
    void event(Sandbox sandbox, String kind, String detail) {
        try {
            store.appendEventLater(new Event(
                    0, sandbox.project(), clock.instant(), kind, sandbox.id().toString(), detail));
        } catch (RuntimeException e) {
            System.getLogger(Records.class.getName())
                    .log(System.Logger.Level.WARNING, "not on record: " + kind + " of " + sandbox.id(), e);
        }
    }

    /** What a caller is told who wants to use a sandbox that has ended. */
    static AtollException ended(Sandbox sandbox) {
        String why = sandbox.end()
                .map(end -> end.reason().text() + " at " + end.at() + ". " + end.detail())
                .orElse("");
        return new AtollException(
                ErrorCode.SANDBOX_ENDED,
                "sandbox: " + sandbox.id() + " has ended: " + why,
                why,
                "Leave sandbox_id out to get a new sandbox; the state of this one is gone.");
    }

    static AtollException stillMade(Sandbox sandbox) {
        return new AtollException(
                ErrorCode.CONFLICT,
                "sandbox: " + sandbox.id() + " is still being made",
                "",
                "Wait for the call that makes it.");
    }

    static AtollException paused(Sandbox sandbox) {
        return new AtollException(
                ErrorCode.SANDBOX_PAUSED,
                "sandbox: " + sandbox.id() + " is paused"
                        + sandbox.pausedAt().map(at -> " since " + at).orElse(""),
                "It was made with auto_resume: false, so using it does not resume it.",
                "POST /v1/sandboxes/" + sandbox.id() + ":resume, then try again.");
    }
}
