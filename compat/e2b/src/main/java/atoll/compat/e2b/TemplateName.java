package atoll.compat.e2b;

import java.util.Locale;
import java.util.regex.Pattern;

/**
 * {@code NAME} or {@code NAME:TAG}, as this protocol names builds of a template. Each tag is a template of the installation's own: {@code NAME} for the tag that
 * is meant where none is said, else {@code NAME.TAG}. This protocol's names have no dot.
 */
record TemplateName(String name, String tag) {
    static final String DEFAULT = "default";
    private static final Pattern NAME = Pattern.compile("(?!tags$)[a-z0-9][a-z0-9_-]{0,62}");
    private static final Pattern TAG = Pattern.compile("[a-z0-9][a-z0-9._-]{0,62}");
    private static final int LONGEST = 63;

    TemplateName {
        if (!NAME.matcher(name).matches()) {
            throw Text.invalid("name: '" + Text.shown(name) + "' (expected: 1 to 63 of a-z, 0-9, _ and -)");
        }
        if (!TAG.matcher(tag).matches()) {
            throw Text.invalid("tag: '" + Text.shown(tag) + "' (expected: 1 to 63 of a-z, 0-9, ., _ and -)");
        }
        if (!tag.equals(DEFAULT) && name.length() + 1 + tag.length() > LONGEST) {
            throw Text.invalid("name and tag: " + (name.length() + tag.length()) + " characters (expected: at most "
                    + (LONGEST - 1) + " together)");
        }
    }

    /** A namespace before it is passed over: a project has but one. */
    static TemplateName parse(String given) {
        String plain = given.substring(given.lastIndexOf('/') + 1).toLowerCase(Locale.ROOT);
        int colon = plain.indexOf(':');
        return colon < 0
                ? new TemplateName(plain, DEFAULT)
                : new TemplateName(plain.substring(0, colon), plain.substring(colon + 1));
    }

    TemplateName withTag(String other) {
        return new TemplateName(name, other.toLowerCase(Locale.ROOT));
    }

    /** The id of the installation's template. */
    String id() {
        return tag.equals(DEFAULT) ? name : name + "." + tag;
    }
}
