package atoll.core.execution;

import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/**
 * A displayed value in one or more forms: one JSON object from MIME type to value, e.g. {@code {"text/plain":"2"}}. The node client
 * has parsed it, so {@code json} is valid and may be put into a reply as it is.
 *
 * @param plainText the value of {@code text/plain}, if there is one
 * @param sizes how many characters of JSON each form takes; empty for what comes from a record
 */
public record MimeBundle(String json, Optional<String> plainText, Map<String, Long> sizes) {
    private static final String PLAIN = "text/plain";

    public MimeBundle {
        sizes = Map.copyOf(sizes);
    }

    public MimeBundle(String json, Optional<String> plainText) {
        this(json, plainText, Map.of());
    }

    /** A bundle of a text alone, or of nothing. */
    public static MimeBundle ofText(Optional<String> text) {
        return text.map(plain -> {
                    String value = quoted(plain);
                    return new MimeBundle(
                            "{\"" + PLAIN + "\":" + value + "}", text, Map.of(PLAIN, (long) value.length()));
                })
                .orElseGet(() -> new MimeBundle("{}", Optional.empty()));
    }

    public boolean isEmpty() {
        return json.equals("{}");
    }

    private static String quoted(String text) {
        StringBuilder json = new StringBuilder(text.length() + 2).append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c)) {
                json.append(String.format(Locale.ROOT, "\\u%04x", (int) c));
            } else {
                json.append(c);
            }
        }
        return json.append('"').toString();
    }
}
