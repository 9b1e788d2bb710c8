package atoll.core;

import java.util.Arrays;
import java.util.UUID;

/**
 * The native text of an id: a prefix and 26 lower-case Crockford base32 characters for the 128 bits of a UUID v4. 26 characters
 * hold 130 bits; the first two are zero, so the first character is at most '7'.
 */
final class IdText {
    static final int LENGTH = 26;
    private static final String ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";
    private static final byte[] VALUES = values();

    private IdText() {}

    static String format(String prefix, UUID id) {
        char[] text = new char[prefix.length() + LENGTH];
        prefix.getChars(0, prefix.length(), text, 0);
        long high = id.getMostSignificantBits();
        long low = id.getLeastSignificantBits();
        for (int i = LENGTH - 1; i >= 0; i--) {
            text[prefix.length() + i] = ALPHABET.charAt((int) (low & 31));
            low = (low >>> 5) | (high << 59);
            high >>>= 5;
        }
        return new String(text);
    }

    /** The id of {@code text}, or an error of the given code that says what is wrong with it. */
    static UUID parse(String prefix, String text, String noun, ErrorCode code) {
        if (!text.startsWith(prefix)) {
            throw malformed(prefix, text, noun, code, "it does not start with \"" + prefix + "\"");
        }
        if (text.length() != prefix.length() + LENGTH) {
            throw malformed(prefix, text, noun, code, "it has " + text.length() + " characters");
        }
        long high = 0;
        long low = 0;
        for (int i = prefix.length(); i < text.length(); i++) {
            char c = text.charAt(i);
            int value = c < VALUES.length ? VALUES[c] : -1;
            if (value < 0 || (i == prefix.length() && value > 7)) {
                throw malformed(prefix, text, noun, code, "character " + (i + 1) + " cannot stand there");
            }
            high = (high << 5) | (low >>> 59);
            low = (low << 5) | value;
        }
        UUID id = new UUID(high, low);
        if (id.version() != 4 || id.variant() != 2) {
            throw malformed(prefix, text, noun, code, "its bits are not those of a random id");
        }
        return id;
    }

    private static AtollException malformed(String prefix, String text, String noun, ErrorCode code, String why) {
        String shown = text.length() > 64 ? text.substring(0, 64) + "…" : text;
        return new AtollException(
                code,
                noun + " id: \"" + shown.replaceAll("\\p{Cntrl}", "\uFFFD") + "\" (expected: \"" + prefix
                        + "\" and 26 lower-case base32 characters)",
                "It is no " + noun + " id: " + why + ".",
                "Use an id exactly as Atoll returned it.");
    }

    private static byte[] values() {
        byte[] values = new byte[128];
        Arrays.fill(values, (byte) -1);
        for (int i = 0; i < ALPHABET.length(); i++) {
            values[ALPHABET.charAt(i)] = (byte) i;
        }
        return values;
    }
}
