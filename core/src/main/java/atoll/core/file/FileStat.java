package atoll.core.file;

import java.time.Instant;
import java.util.Map;
import java.util.Optional;

/**
 * What is known of a file, folder or symlink.
 *
 * @param path absolute; of a symlink its own, not its target's
 * @param mode permission bits with set-id and sticky bits, at most 07777
 * @param owner a name where the image knows it, else the number as text
 * @param linkTarget of a symlink: what it says
 * @param targetType of a symlink: what it leads to; empty where that is not there
 * @param attributes of the {@code user.} namespace, where they were asked for
 */
public record FileStat(
        String path,
        String name,
        FileType type,
        long size,
        int mode,
        long uid,
        long gid,
        String owner,
        String group,
        Instant modifiedAt,
        Instant changedAt,
        Instant accessedAt,
        Optional<String> linkTarget,
        Optional<FileType> targetType,
        long inode,
        long links,
        Map<String, String> attributes) {
    public FileStat {
        attributes = Map.copyOf(attributes);
    }
}
