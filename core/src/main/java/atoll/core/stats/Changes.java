package atoll.core.stats;

import java.time.Duration;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;

/**
 * Tells that something has changed, not what: who wants to know reads it again. What has changed is readable when it is told, but for
 * numbers that are counted on the side, so whoever shows such numbers waits no longer than they may be old.
 */
public interface Changes {
    /** What has changed. */
    enum Topic {
        SANDBOXES,
        EXECUTIONS,
        PROCESSES,
        SNAPSHOTS,
        TEMPLATES,
        POOLS,
        KEYS
    }

    /** How often each has changed since the server started. */
    record State(Map<Topic, Long> versions) {
        public static final State NONE = new State(Map.of());

        public State {
            versions = Map.copyOf(versions);
        }

        /** What has changed since an earlier state. */
        public Set<Topic> since(State earlier) {
            Set<Topic> changed = EnumSet.noneOf(Topic.class);
            versions.forEach((topic, version) -> {
                if (version > earlier.versions.getOrDefault(topic, 0L)) {
                    changed.add(topic);
                }
            });
            return changed;
        }
    }

    State now();

    /** Waits until one of the topics has changed since that state, at most so long, and returns how it is then. */
    State await(State since, Set<Topic> topics, Duration limit) throws InterruptedException;
}
