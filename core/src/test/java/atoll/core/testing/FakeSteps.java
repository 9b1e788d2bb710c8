package atoll.core.testing;

import atoll.core.AtollException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/** What tests have happen at steps of a {@link FakeNode}'s calls, on the thread that makes the call and without the node's lock. */
final class FakeSteps {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private record Place(FakeCall call, FakeCall.Step step) {}

    private final Map<Place, Runnable> what = new HashMap<>();

    /** Replaces what was to happen there. */
    synchronized void at(FakeCall call, FakeCall.Step step, Optional<Runnable> action) {
        if (action.isPresent()) {
            what.put(new Place(call, step), action.get());
        } else {
            what.remove(new Place(call, step));
        }
    }

    /** The next call that comes there, and no other. */
    synchronized void once(FakeCall call, FakeCall.Step step, Runnable action) {
        what.put(new Place(call, step), () -> {
            at(call, step, Optional.empty());
            action.run();
        });
    }

    void reach(FakeCall call, FakeCall.Step step) {
        Optional<Runnable> action;
        synchronized (this) {
            action = Optional.ofNullable(what.get(new Place(call, step)));
        }
        action.ifPresent(Runnable::run);
    }

    /** Calls wait there until it is released. */
    static final class Gate implements FakeNode.Hold {
        private final String name;
        private int reached;
        private boolean open;

        Gate(String name) {
            this.name = name;
        }

        synchronized void pass() {
            reached++;
            notifyAll();
            await(true);
        }

        @Override
        public synchronized void awaitReached() {
            await(false);
        }

        private void await(boolean forOpen) {
            long end = System.nanoTime() + LIMIT.toNanos();
            try {
                while (forOpen ? !open : reached == 0) {
                    long left = (end - System.nanoTime()) / 1_000_000;
                    if (left <= 0) {
                        throw new AssertionError(
                                name + (forOpen ? " was not released within " : " was not reached within ") + LIMIT);
                    }
                    wait(left);
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw FakeNode.unavailable();
            }
        }

        @Override
        public synchronized int reached() {
            return reached;
        }

        @Override
        public synchronized void release() {
            open = true;
            notifyAll();
        }
    }

    static Runnable failing(AtollException how) {
        return () -> {
            throw new AtollException(how.code(), how.message(), how.reason(), how.remediation());
        };
    }
}
