package atoll.core.stats;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Duration;
import java.util.EnumMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** Counts changes; those who wait are woken, and who counts never waits for them. */
public final class ChangeCounter implements Changes {
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition counted = lock.newCondition();

    @GuardedBy("lock")
    private final Map<Topic, Long> versions = new EnumMap<>(Topic.class);

    public void changed(Topic topic) {
        lock.lock();
        try {
            versions.merge(topic, 1L, Long::sum);
            counted.signalAll();
        } finally {
            lock.unlock();
        }
    }

    @Override
    public State now() {
        lock.lock();
        try {
            return new State(versions);
        } finally {
            lock.unlock();
        }
    }

    @Override
    public State await(State since, Set<Topic> topics, Duration limit) throws InterruptedException {
        long left = limit.toNanos();
        lock.lock();
        try {
            while (left > 0 && !changed(since, topics)) {
                left = counted.awaitNanos(Math.min(left, TimeUnit.HOURS.toNanos(1)));
            }
            return new State(versions);
        } finally {
            lock.unlock();
        }
    }

    @GuardedBy("lock")
    private boolean changed(State since, Set<Topic> topics) {
        for (Topic topic : topics) {
            if (versions.getOrDefault(topic, 0L) > since.versions().getOrDefault(topic, 0L)) {
                return true;
            }
        }
        return false;
    }
}
