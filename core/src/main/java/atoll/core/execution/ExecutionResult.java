package atoll.core.execution;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/**
 * A value that an execution displayed.
 *
 * @param main true for the value of the last expression, false for one shown by display()
 * @param truncatedBytes bytes left out because the bundle was over the limit; 0 when it is whole
 * @param metadata a JSON object from MIME type to what goes with that form, such as a picture's size
 * @param leftOut the bytes left out by MIME type, as far as that is known; a type that is in {@code data} all the same was cut
 * @param displayId the name under which a later one may replace it
 * @param update whether it takes the place of the one with its {@code displayId}
 * @param clear whether what the execution has displayed before is forgotten; then {@code data} may be empty, and nothing is displayed
 */
public record ExecutionResult(
        boolean main,
        MimeBundle data,
        long truncatedBytes,
        String metadata,
        Map<String, Long> leftOut,
        Optional<String> displayId,
        boolean update,
        boolean clear) {
    public static final String NO_METADATA = "{}";

    public ExecutionResult {
        leftOut = Map.copyOf(leftOut);
    }

    /** One of which there is nothing more to say. */
    public ExecutionResult(boolean main, MimeBundle data, long truncatedBytes) {
        this(main, data, truncatedBytes, NO_METADATA, Map.of(), Optional.empty(), false, false);
    }

    /** How many characters it takes. */
    long size() {
        return (long) data.json().length() + metadata.length();
    }

    /** Itself as it is kept: its place has been taken, its order has been followed. */
    ExecutionResult settled() {
        return update || clear
                ? new ExecutionResult(main, data, truncatedBytes, metadata, leftOut, displayId, false, false)
                : this;
    }

    /** What is left where there is no room for it: so many characters of its text. */
    ExecutionResult textOnly(int limit) {
        Map<String, Long> missing = new HashMap<>(leftOut);
        data.sizes().forEach((type, size) -> {
            if (!type.equals("text/plain")) {
                missing.merge(type, size, Long::sum);
            }
        });
        Optional<String> text = data.plainText().map(plain -> beginning(plain, limit));
        long cut = (long) data.plainText().map(String::length).orElse(0)
                - text.map(String::length).orElse(0);
        if (cut > 0) {
            missing.merge("text/plain", cut, Long::sum);
        }
        MimeBundle kept = MimeBundle.ofText(text);
        long lost = Math.max(1L, (long) data.json().length() - kept.json().length());
        return new ExecutionResult(main, kept, truncatedBytes + lost, NO_METADATA, missing, displayId, false, false);
    }

    private static String beginning(String text, int limit) {
        if (text.length() <= limit) {
            return text;
        }
        return text.substring(0, Character.isHighSurrogate(text.charAt(limit - 1)) ? limit - 1 : limit);
    }
}
