package atoll.core.file;

import java.util.List;
import java.util.Optional;

/**
 * What came of an operation.
 *
 * @param file what the operation was about; the result of a move or copy
 * @param entries of a list, or of a find by name
 * @param next where a list goes on
 * @param problems what could not be looked at, in sentences
 * @param changed false where nothing had to be done
 */
public record FileReply(
        Optional<FileStat> file,
        List<FileStat> entries,
        List<Match> matches,
        List<Replaced> replaced,
        Optional<String> next,
        List<String> problems,
        boolean changed,
        Disk disk) {
    public FileReply {
        entries = List.copyOf(entries);
        matches = List.copyOf(matches);
        replaced = List.copyOf(replaced);
        problems = List.copyOf(problems);
    }

    /**
     * A place where content was found.
     *
     * @param line from 1
     * @param text the line, cut around the match
     * @param from byte offset of the match in {@code text}
     */
    public record Match(String path, long line, String text, int from, int length) {}

    /**
     * What became of one file.
     *
     * @param error why it was left as it was; empty: done
     */
    public record Replaced(String path, int count, Optional<String> error) {}

    public record Disk(long usedBytes, long limitBytes, long inodesUsed) {
        public static final Disk UNKNOWN = new Disk(0, 0, 0);
    }
}
