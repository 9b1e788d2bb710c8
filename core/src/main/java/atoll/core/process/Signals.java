package atoll.core.process;

import atoll.core.AtollException;
import java.util.List;
import java.util.Locale;

/** Linux's signals, by name and number. */
public final class Signals {
    public static final int HANGUP = 1;
    public static final int INTERRUPT = 2;
    public static final int KILL = 9;
    public static final int TERMINATE = 15;
    private static final int MOST = 64;

    /** The name at its number, from 1 on. */
    private static final List<String> NAMES = List.of(
            "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
            "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
            "WINCH", "IO", "PWR", "SYS");

    private Signals() {}

    /** Of {@code TERM}, {@code SIGTERM}, {@code term} or {@code 15}. */
    public static int parse(String text) {
        String name = text.strip().toUpperCase(Locale.ROOT);
        int known = NAMES.indexOf(name.startsWith("SIG") ? name.substring(3) : name);
        if (known >= 0) {
            return known + 1;
        }
        try {
            return check(Integer.parseInt(name));
        } catch (NumberFormatException e) {
            throw invalid(text.length() > 32 ? text.substring(0, 32) + "…" : text);
        }
    }

    /** Returns it; fails for a number that is no signal. */
    public static int check(int signal) {
        if (signal < 1 || signal > MOST) {
            throw invalid(Integer.toString(signal));
        }
        return signal;
    }

    /** E.g. {@code TERM}; the number of one without a name. */
    public static String name(int signal) {
        return signal >= 1 && signal <= NAMES.size() ? NAMES.get(signal - 1) : Integer.toString(signal);
    }

    private static AtollException invalid(String shown) {
        return AtollException.invalid(
                "signal: \"" + shown + "\" (expected: a name like TERM, or a number from 1 to " + MOST + ")",
                "Correct the signal.");
    }
}
