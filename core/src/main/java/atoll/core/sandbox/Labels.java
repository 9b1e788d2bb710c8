package atoll.core.sandbox;

import atoll.core.AtollException;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/** The rules for labels. */
public final class Labels {
    private static final int MOST = 64;
    private static final int LONGEST_NAME = 128;
    private static final int LONGEST_VALUE = 1024;

    private Labels() {}

    /** Returns them; fails for too many or too long ones. */
    public static Map<String, String> check(Map<String, String> labels) {
        if (labels.size() > MOST) {
            throw AtollException.invalid(
                    "labels: " + labels.size() + " (expected: at most " + MOST + ")", "Take some away.");
        }
        labels.forEach((name, value) -> {
            if (name.isBlank() || name.length() > LONGEST_NAME || value.length() > LONGEST_VALUE) {
                throw AtollException.invalid(
                        "labels: a name of " + name.length() + " and a value of " + value.length()
                                + " characters (expected: a name of 1 to " + LONGEST_NAME + ", a value of at most "
                                + LONGEST_VALUE + ")",
                        "Shorten them; large values belong into a file of the sandbox.");
            }
            if (name.indexOf('\0') >= 0 || value.indexOf('\0') >= 0) {
                throw AtollException.invalid("labels: one holds NUL (expected: text without it)", "Take it out.");
            }
        });
        return labels;
    }

    /** The labels after changes: by name the new value, or empty to take the label away; fails for what can be none. */
    public static Map<String, String> changed(Map<String, String> labels, Map<String, Optional<String>> changes) {
        Map<String, String> changed = new HashMap<>(labels);
        changes.forEach((name, value) -> {
            if (value.isPresent()) {
                changed.put(name, value.get());
            } else {
                changed.remove(name);
            }
        });
        return check(changed);
    }
}
