package atoll.core.template;

import atoll.core.AtollException;
import java.util.List;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * Packages to install, each as its tool names it, with a version if one is wanted: {@code curl}, {@code requests==2.32.0},
 * {@code zod@3}, {@code golang.org/x/text@v0.14.0}.
 */
public record Packages(List<String> apt, List<String> pip, List<String> npm, List<String> go) {
    public static final Packages NONE = new Packages(List.of(), List.of(), List.of(), List.of());
    private static final int MOST = 500;
    private static final int LONGEST = 512;
    private static final Pattern APT =
            Pattern.compile("[a-z0-9][a-z0-9.+-]*(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+|/[a-z0-9.-]+)?");
    private static final Pattern NPM = Pattern.compile("[^\\s'\"`\\\\;|&$<>()]+");
    private static final Pattern GO = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._~/-]*(@[A-Za-z0-9._+/-]+)?");

    public Packages {
        apt = check("apt", apt, APT);
        pip = check("pip", pip, null);
        npm = check("npm", npm, NPM);
        go = check("go", go, GO);
    }

    public boolean isEmpty() {
        return apt.isEmpty() && pip.isEmpty() && npm.isEmpty() && go.isEmpty();
    }

    private static List<String> check(String kind, List<String> names, @Nullable Pattern form) {
        if (names.size() > MOST) {
            throw AtollException.invalid(
                    "packages." + kind + ": " + names.size() + " (expected: at most " + MOST + ")",
                    "Install the rest with a command, from a file.");
        }
        for (String name : names) {
            boolean odd = name.isBlank()
                    || name.length() > LONGEST
                    || name.startsWith("-")
                    || name.chars().anyMatch(Character::isISOControl);
            if (odd || (form != null && !form.matcher(name).matches())) {
                throw AtollException.invalid(
                        "packages." + kind + ": \"" + TemplateDefinition.shown(name)
                                + "\" (expected: a package's name, with a version if one is wanted)",
                        "Correct it; options and more go into commands.");
            }
        }
        return List.copyOf(names);
    }
}
