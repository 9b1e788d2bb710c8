package atoll.core.sandbox;

import atoll.core.AtollException;
import java.util.regex.Pattern;

/** The rule for names of sandboxes and snapshots: each stands where an id could stand, so none may look like one. */
public final class Names {
    private static final Pattern NAME = Pattern.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?");

    private Names() {}

    /** Returns it; fails for what can be no name, or begins as an id does ({@code idPrefix}). */
    public static String check(String name, String idPrefix) {
        if (!NAME.matcher(name).matches() || name.startsWith(idPrefix)) {
            String shown = name.length() > 64 ? name.substring(0, 64) + "…" : name;
            throw AtollException.invalid(
                    "name: \"" + shown.replaceAll("\\p{Cntrl}", "\uFFFD") + "\" (expected: 1 to 63 of a-z, 0-9 and -,"
                            + " no - at either end, and not beginning with " + idPrefix + ")",
                    "Choose another name, or leave it out.");
        }
        return name;
    }
}
