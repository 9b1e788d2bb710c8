package atoll.core.snapshot;

import java.util.Locale;

/** What a snapshot holds. */
public enum SnapshotKind {
    /** Files, memory, everything that runs: a sandbox from it goes on where the source was. */
    MEMORY,
    /** Files only: a sandbox from it starts its interpreters anew. */
    FILES;

    /** As it stands in requests and replies, e.g. {@code memory}. */
    public String text() {
        return name().toLowerCase(Locale.ROOT);
    }
}
