package atoll.core.execution;

import java.util.List;

/**
 * The files below its context's working folder that an execution has made or changed, by path. Passed over are names that begin with a
 * dot, {@code __pycache__} and {@code node_modules}.
 *
 * @param incomplete whether there may be more: the folder has too many names, or could not be read
 */
public record ChangedFiles(List<ChangedFile> files, boolean incomplete) {
    /** Longer lists are cut. */
    public static final int MAX_FILES = 1000;

    public ChangedFiles {
        incomplete |= files.size() > MAX_FILES;
        files = List.copyOf(files.size() > MAX_FILES ? files.subList(0, MAX_FILES) : files);
    }

    /** As many of the first ones as have paths of so many characters. */
    ChangedFiles within(int chars) {
        int count = 0;
        int sum = 0;
        while (count < files.size()) {
            sum += files.get(count).path().length();
            if (sum > chars) {
                return new ChangedFiles(files.subList(0, count), true);
            }
            count++;
        }
        return this;
    }
}
