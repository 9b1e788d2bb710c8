package atoll.compat.e2b;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What an installation says of itself to these SDKs.
 *
 * @param domain the ports of sandboxes are served at {@code {port}-{id}.{domain}}; it may have a port of its own
 * @param templates the installation's templates behind this protocol's own names, where it is not for Atoll to choose
 */
public record E2bSettings(String domain, Map<String, String> templates) {
    static final String BASE = "base";
    static final String CODE_INTERPRETER = "code-interpreter-v1";

    public E2bSettings {
        templates = Map.copyOf(templates);
        for (String name : templates.keySet()) {
            if (!name.equals(BASE) && !name.equals(CODE_INTERPRETER)) {
                throw new IllegalArgumentException(
                        "e2b-templates: \"%s\" (expected: %s or %s)".formatted(name, BASE, CODE_INTERPRETER));
            }
        }
    }

    /** Whether a name is this protocol's own. */
    static boolean isReserved(String name) {
        return name.equals(BASE) || name.equals(CODE_INTERPRETER);
    }

    /**
     * With templates as text.
     *
     * @param templates such as {@code base=NAME,code-interpreter-v1=NAME}; empty for Atoll's choice
     */
    public static E2bSettings of(String domain, String templates) {
        Map<String, String> named = new HashMap<>();
        for (String pair : List.of(templates.split(",", -1))) {
            int equals = pair.indexOf('=');
            if (equals > 0 && equals < pair.length() - 1) {
                named.put(
                        pair.substring(0, equals).strip(),
                        pair.substring(equals + 1).strip());
            } else if (!pair.isBlank()) {
                throw new IllegalArgumentException(
                        "e2b-templates: \"%s\" (expected: NAME=TEMPLATE, with commas between)".formatted(pair));
            }
        }
        return new E2bSettings(domain, named);
    }
}
