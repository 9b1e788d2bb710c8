package atoll.core.execution;

/**
 * What a program printed, as text.
 *
 * @param output what a person would have seen in a terminal
 */
public record PrintedText(CapturedText output, CapturedText stdout, CapturedText stderr) {
    public boolean truncated() {
        return output.truncated() || stdout.truncated() || stderr.truncated();
    }
}
