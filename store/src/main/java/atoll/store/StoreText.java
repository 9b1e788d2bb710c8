package atoll.store;

import org.jspecify.annotations.Nullable;

/**
 * Text that both databases take: PostgreSQL refuses NUL, and half a surrogate pair is no UTF-8. NUL is written as two characters of a
 * private range, and read back; half a pair becomes U+FFFD.
 */
final class StoreText {
    private static final char ESCAPE = '\uE000';
    private static final char ESCAPED_ITSELF = '\uE001';
    private static final char ESCAPED_NUL = '\uE002';

    private StoreText() {}

    static String encode(String text) {
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '\0' || c == ESCAPE || Character.isSurrogate(c)) {
                return encodeFrom(text, i);
            }
        }
        return text;
    }

    private static String encodeFrom(String text, int from) {
        StringBuilder encoded = new StringBuilder(text.length() + 16).append(text, 0, from);
        for (int i = from; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '\0') {
                encoded.append(ESCAPE).append(ESCAPED_NUL);
            } else if (c == ESCAPE) {
                encoded.append(ESCAPE).append(ESCAPED_ITSELF);
            } else if (!Character.isSurrogate(c)) {
                encoded.append(c);
            } else if (Character.isHighSurrogate(c)
                    && i + 1 < text.length()
                    && Character.isLowSurrogate(text.charAt(i + 1))) {
                encoded.append(c).append(text.charAt(i + 1));
                i++;
            } else {
                encoded.append('\uFFFD');
            }
        }
        return encoded.toString();
    }

    static String decode(@Nullable String text) {
        if (text == null) {
            return "";
        }
        if (text.indexOf(ESCAPE) < 0) {
            return text;
        }
        return text.replace("" + ESCAPE + ESCAPED_NUL, "\0").replace("" + ESCAPE + ESCAPED_ITSELF, "" + ESCAPE);
    }
}
