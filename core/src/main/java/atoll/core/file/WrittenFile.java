package atoll.core.file;

/**
 * What came of a write.
 *
 * @param files of an archive: how many were unpacked
 */
public record WrittenFile(FileStat file, long bytes, long files, boolean created) {}
