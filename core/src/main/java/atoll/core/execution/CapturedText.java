package atoll.core.execution;

/**
 * What was kept of something printed: all of it, or head and tail with a line between them that says how much is missing.
 *
 * @param totalBytes how many bytes were printed in all
 */
public record CapturedText(String text, long totalBytes, boolean truncated) {
    public static final CapturedText EMPTY = new CapturedText("", 0, false);
}
