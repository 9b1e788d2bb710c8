package atoll.core;

import java.util.UUID;

/** Names a snapshot. */
public record SnapshotId(UUID uuid) {
    public static final String PREFIX = "snap-";

    public static SnapshotId random() {
        return new SnapshotId(UUID.randomUUID());
    }

    public static SnapshotId parse(String text) {
        return new SnapshotId(IdText.parse(PREFIX, text, "snapshot", ErrorCode.SNAPSHOT_NOT_FOUND));
    }

    @Override
    public String toString() {
        return IdText.format(PREFIX, uuid);
    }
}
