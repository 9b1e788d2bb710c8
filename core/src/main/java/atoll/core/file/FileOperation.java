package atoll.core.file;

import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;

/** One thing to do with files that fits one message each way. What is longer than that is read, written or watched as a stream. */
public sealed interface FileOperation {
    /** The paths it names, for checks. */
    List<String> paths();

    /** Whether doing it twice gives the same as doing it once: only then is it done again after a lost answer. */
    boolean repeatable();

    /**
     * Looks at one thing.
     *
     * @param follow look at what a symlink leads to
     */
    record Stat(String path, boolean follow, boolean attributes) implements FileOperation {
        @Override
        public List<String> paths() {
            return List.of(path);
        }

        @Override
        public boolean repeatable() {
            return true;
        }
    }

    /**
     * Names come in byte order, folders before what is in them.
     *
     * @param depth 1: the folder's own entries
     * @param after the {@code next} of an earlier reply
     */
    record ListFolder(String path, int depth, boolean hidden, int limit, String after) implements FileOperation {
        public static final int MOST = 10_000;

        public ListFolder {
            Bounds.check("depth", depth, 1, 1000);
            Bounds.check("limit", limit, 1, MOST);
        }

        @Override
        public List<String> paths() {
            return List.of(path);
        }

        @Override
        public boolean repeatable() {
            return true;
        }
    }

    /**
     * Makes a folder.
     *
     * @param existOk a folder that is there is no error
     */
    record MakeFolder(String path, boolean parents, OptionalInt mode, boolean existOk) implements FileOperation {
        public MakeFolder {
            Bounds.mode(mode);
        }

        @Override
        public List<String> paths() {
            return List.of(path);
        }

        @Override
        public boolean repeatable() {
            return existOk;
        }
    }

    record Move(String from, String to, boolean overwrite, boolean parents) implements FileOperation {
        @Override
        public List<String> paths() {
            return List.of(from, to);
        }

        @Override
        public boolean repeatable() {
            return false;
        }
    }

    record Copy(String from, String to, boolean overwrite, boolean recursive, boolean parents)
            implements FileOperation {
        @Override
        public List<String> paths() {
            return List.of(from, to);
        }

        @Override
        public boolean repeatable() {
            return false;
        }
    }

    /**
     * Removes a file, a symlink itself, or a folder.
     *
     * @param force a path that is not there is no error
     */
    record Remove(String path, boolean recursive, boolean force) implements FileOperation {
        @Override
        public List<String> paths() {
            return List.of(path);
        }

        @Override
        public boolean repeatable() {
            return force;
        }
    }

    /** What is empty stays as it is. */
    record Change(
            String path,
            OptionalInt mode,
            Optional<String> owner,
            Optional<String> group,
            boolean recursive,
            Optional<Instant> modifiedAt)
            implements FileOperation {
        public Change {
            Bounds.mode(mode);
        }

        @Override
        public List<String> paths() {
            return List.of(path);
        }

        @Override
        public boolean repeatable() {
            return true;
        }
    }

    /**
     * Makes a symlink.
     *
     * @param target what it is to say; it need not be there
     */
    record MakeSymlink(String path, String target) implements FileOperation {
        @Override
        public List<String> paths() {
            return List.of(path, target);
        }

        @Override
        public boolean repeatable() {
            return false;
        }
    }

    /**
     * Finds by name, or by content where that is not empty.
     *
     * @param name a glob over the name, or over the path below {@code path} if it holds a slash; empty: every name
     */
    record Find(
            String path,
            String name,
            String content,
            boolean regex,
            boolean ignoreCase,
            boolean hidden,
            Optional<FileType> type,
            int limit)
            implements FileOperation {
        public static final int MOST = 10_000;

        public Find {
            Bounds.check("limit", limit, 1, MOST);
        }

        @Override
        public List<String> paths() {
            return List.of(path);
        }

        @Override
        public boolean repeatable() {
            return true;
        }
    }

    record Replace(List<String> paths, String pattern, String replacement, boolean regex) implements FileOperation {
        public static final int MOST = 10_000;

        public Replace {
            paths = List.copyOf(paths);
            Bounds.check("paths", paths.size(), 1, MOST);
            if (pattern.isEmpty()) {
                throw Bounds.invalid("pattern: \"\" (expected: at least one character)");
            }
        }

        @Override
        public boolean repeatable() {
            return false;
        }
    }

    /** Of the file system that the path is on. */
    record DiskUsage(String path) implements FileOperation {
        @Override
        public List<String> paths() {
            return List.of(path);
        }

        @Override
        public boolean repeatable() {
            return true;
        }
    }
}
