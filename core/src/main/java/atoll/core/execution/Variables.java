package atoll.core.execution;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import java.util.Map;

/** The rules for environment variables that callers set. */
public final class Variables {
    private static final int MOST = 256;
    private static final int MOST_CHARS = 256 * 1024;

    private Variables() {}

    /** Returns them; fails for names that no environment can hold, and for too many. */
    public static Map<String, String> check(Map<String, String> env) {
        long chars = 0;
        for (Map.Entry<String, String> variable : env.entrySet()) {
            String name = variable.getKey();
            if (name.isEmpty() || name.indexOf('=') >= 0 || name.indexOf('\0') >= 0) {
                throw AtollException.invalid(
                        "env: a variable's name is empty or holds '=' or NUL (expected: a name like LANG)",
                        "Correct the name.");
            }
            if (variable.getValue().indexOf('\0') >= 0) {
                throw AtollException.invalid(
                        "env: the value of " + name + " holds NUL (expected: text without it)", "Take it out.");
            }
            chars += (long) name.length() + variable.getValue().length();
        }
        if (env.size() > MOST || chars > MOST_CHARS) {
            throw new AtollException(
                    ErrorCode.REQUEST_TOO_LARGE,
                    "env: " + env.size() + " variables of " + chars + " characters (expected: at most " + MOST + " of "
                            + MOST_CHARS + ")",
                    "",
                    "Put large values into a file of the sandbox.");
        }
        return env;
    }

    /** How long a text is in UTF-8. */
    public static long utf8Bytes(String text) {
        long bytes = text.length();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            // Each half of a surrogate pair counts for two of its four bytes.
            bytes += c < 0x80 ? 0 : c < 0x800 || Character.isSurrogate(c) ? 1 : 2;
        }
        return bytes;
    }
}
