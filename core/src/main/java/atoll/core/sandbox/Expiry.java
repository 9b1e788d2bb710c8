package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.SandboxId;
import atoll.core.Settings;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.function.Supplier;

/**
 * Ends or pauses the sandboxes whose time is up. A sweep over all of them, every second and right after the start: nothing is missed by
 * a restart, and nobody has a timer of his own.
 */
public final class Expiry {
    private static final System.Logger LOG = System.getLogger(Expiry.class.getName());
    private static final Duration PERIOD = Duration.ofSeconds(1);
    /** How far what is on record may be behind what is known of the last use. */
    private static final Duration NOTED = Duration.ofSeconds(30);
    /** After a pause that failed. */
    private static final Duration RETRY = Duration.ofMinutes(1);

    private final LiveSandboxes live;
    private final Records records;
    private final LifecycleService lifecycles;
    private final Settings.Lives lives;
    private final InstantSource clock;
    private final Executor background;
    /** Those in which code runs. */
    private final Supplier<Set<SandboxId>> busy;

    Expiry(
            LiveSandboxes live,
            Records records,
            LifecycleService lifecycles,
            Settings.Lives lives,
            InstantSource clock,
            Executor background,
            Supplier<Set<SandboxId>> busy) {
        this.live = live;
        this.records = records;
        this.lifecycles = lifecycles;
        this.lives = lives;
        this.clock = clock;
        this.background = background;
        this.busy = busy;
    }

    /** Sweeps until its thread is interrupted. */
    public void run() {
        while (!Thread.currentThread().isInterrupted()) {
            try {
                sweep();
                Thread.sleep(PERIOD);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            } catch (RuntimeException e) {
                LOG.log(System.Logger.Level.WARNING, "sandboxes whose time is up could not be looked for", e);
            }
        }
    }

    /** Looks at all once; what takes time is done in the background. */
    public void sweep() {
        Set<SandboxId> used = busy.get();
        for (LiveSandbox alive : live.all()) {
            Instant now = clock.instant();
            if (used.contains(alive.id())) {
                alive.touch(now);
            }
            try {
                look(alive, now);
            } catch (AtollException e) {
                LOG.log(
                        e.code().fault() == ErrorCode.Fault.OURS
                                ? System.Logger.Level.WARNING
                                : System.Logger.Level.DEBUG,
                        "sandbox " + alive.id() + ", whose time is up: " + e.getMessage());
            }
        }
    }

    private void look(LiveSandbox alive, Instant now) {
        switch (alive.sandbox().state()) {
            case RUNNING -> {
                Optional<EndReason> due = due(alive, now);
                if (due.isPresent()) {
                    timeUp(alive, now);
                } else {
                    keep(alive);
                }
            }
            case PAUSED -> {
                if (isForgotten(alive, now)) {
                    end(
                            alive,
                            () -> isForgotten(alive, clock.instant())
                                    ? Optional.of(EndReason.EXPIRED)
                                    : Optional.empty());
                }
            }
            case CREATING, PAUSING, RESUMING, ENDED -> {}
        }
    }

    private boolean isForgotten(LiveSandbox alive, Instant now) {
        return alive.sandbox().state() == SandboxState.PAUSED
                && alive.sandbox()
                        .pausedAt()
                        .filter(at -> !now.isBefore(at.plus(lives.paused())))
                        .isPresent();
    }

    private void keep(LiveSandbox alive) {
        if (alive.lastActive().isAfter(alive.sandbox().lastActiveAt().plus(NOTED))) {
            records.noteActive(alive);
        }
        if (alive.deadlineOpen) {
            background.execute(() -> lifecycles.tellDeadline(alive));
        }
    }

    /** Why its time is up, if it is. */
    private static Optional<EndReason> due(LiveSandbox alive, Instant now) {
        Sandbox sandbox = alive.sandbox();
        if (sandbox.state() != SandboxState.RUNNING) {
            return Optional.empty();
        }
        if (sandbox.expiresAt().filter(at -> !now.isBefore(at)).isPresent()) {
            return Optional.of(EndReason.EXPIRED);
        }
        boolean idle = sandbox.lifecycle()
                .idleTimeout()
                .filter(most -> !now.isBefore(alive.lastActive().plus(most)))
                .isPresent();
        return idle ? Optional.of(EndReason.IDLE) : Optional.empty();
    }

    private void timeUp(LiveSandbox alive, Instant now) {
        switch (alive.sandbox().lifecycle().onTimeout()) {
            case KILL -> end(alive, () -> due(alive, clock.instant()));
            case PAUSE -> {
                if (!now.isBefore(alive.nextPause) && !alive.lifecycle().isLocked()) {
                    background.execute(() -> pause(alive));
                }
            }
        }
    }

    private void pause(LiveSandbox alive) {
        try {
            lifecycles.pauseIf(alive, () -> due(alive, clock.instant()).isPresent());
        } catch (AtollException e) {
            alive.nextPause = clock.instant().plus(RETRY);
            if (e.code() == ErrorCode.UNSUPPORTED_BY_RUNTIME) {
                // Its lifetime is its end then; it is let be while nobody uses it, since nothing of it could be kept.
                end(alive, () -> due(alive, clock.instant()).filter(reason -> reason == EndReason.EXPIRED));
                return;
            }
            boolean ended = e.code() == ErrorCode.SANDBOX_ENDED;
            LOG.log(
                    ended ? System.Logger.Level.DEBUG : System.Logger.Level.WARNING,
                    "sandbox " + alive.id() + ", whose time is up, could not be paused; it is tried again in " + RETRY
                            + ": " + e.getMessage());
        }
    }

    /** Ends it if it is due still at the moment that nobody can change it. */
    private void end(LiveSandbox alive, Supplier<Optional<EndReason>> due) {
        alive.writer.lock();
        try {
            due.get().ifPresent(reason -> records.endAndRemove(alive, reason, told(alive.seen(), reason)));
        } finally {
            alive.writer.unlock();
        }
    }

    private String told(Sandbox sandbox, EndReason reason) {
        if (sandbox.state() == SandboxState.PAUSED) {
            return "It had been paused for " + lives.paused().toDays() + " days (setting sandboxes.paused_days).";
        }
        Lifecycle lifecycle = sandbox.lifecycle();
        return reason == EndReason.IDLE
                ? "Nobody had used it for "
                        + lifecycle.idleTimeout().orElse(Duration.ZERO).toSeconds() + " s."
                : "Its lifetime of "
                        + lifecycle.lifetime().orElse(Duration.ZERO).toSeconds() + " s was over.";
    }
}
