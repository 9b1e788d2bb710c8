package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.execution.Variables;
import java.util.Map;
import java.util.Optional;

/**
 * A context, as a caller asks for it.
 *
 * @param language without it the template's own
 * @param cwd absolute, or relative to the user's home; empty: the template's
 * @param env for its interpreter and all that it starts
 */
public record CreateContext(Optional<String> language, String cwd, Map<String, String> env) {
    private static final int LONGEST_PATH = 4096;

    public CreateContext {
        env = Variables.check(Map.copyOf(env));
        if (cwd.length() > LONGEST_PATH || cwd.indexOf('\0') >= 0) {
            throw AtollException.invalid(
                    "cwd: " + cwd.length() + " characters, or one of them NUL (expected: at most " + LONGEST_PATH
                            + ", without NUL)",
                    "Correct it.");
        }
    }
}
