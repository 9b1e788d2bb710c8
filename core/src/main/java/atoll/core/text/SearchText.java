package atoll.core.text;

import atoll.core.AtollException;

/** What is looked for in texts, in any case: every character counts as it stands, none is a wildcard. */
public record SearchText(String text) {
    public static final int MOST_CHARS = 200;

    public SearchText {
        if (text.isEmpty() || text.length() > MOST_CHARS) {
            throw AtollException.invalid(
                    "q: " + text.length() + " characters (expected: 1 to " + MOST_CHARS + ")",
                    "Search for a shorter text, or leave it out.");
        }
    }

    public boolean isIn(String where) {
        char first = fold(text.charAt(0));
        int last = where.length() - text.length();
        for (int i = 0; i <= last; i++) {
            if (fold(where.charAt(i)) == first && where.regionMatches(true, i, text, 0, text.length())) {
                return true;
            }
        }
        return false;
    }

    /** As {@link String#regionMatches} compares. */
    private static char fold(char c) {
        if (c < 128) {
            return c >= 'A' && c <= 'Z' ? (char) (c + ('a' - 'A')) : c;
        }
        return Character.toLowerCase(Character.toUpperCase(c));
    }
}
