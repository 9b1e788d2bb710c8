package atoll.core;

import java.util.Locale;
import java.util.Optional;

/** A language that contexts speak. */
public enum Language {
    PYTHON("python"),
    /** Runs JavaScript too. */
    TYPESCRIPT("typescript"),
    BASH("bash"),
    GO("go");

    private final String text;

    Language(String text) {
        this.text = text;
    }

    /** The name callers and the node use. */
    public String text() {
        return text;
    }

    /** The language of a name or a common alias, in any case. */
    public static Language parse(String name) {
        return switch (name.strip().toLowerCase(Locale.ROOT)) {
            case "python", "python3", "py", "ipython" -> PYTHON;
            case "typescript", "ts", "javascript", "js" -> TYPESCRIPT;
            case "bash", "sh", "shell" -> BASH;
            case "go", "golang" -> GO;
            default ->
                throw new AtollException(
                        ErrorCode.LANGUAGE_NOT_FOUND,
                        "language: \"" + (name.length() > 64 ? name.substring(0, 64) + "…" : name)
                                + "\" (expected: python, typescript, javascript, bash or go)",
                        "No such language is known.",
                        "Name one of these, or leave it out for the template's own.");
        };
    }

    /** The language of a name as {@link #text} gives it; empty for one that this server does not know. */
    public static Optional<Language> ofText(String text) {
        for (Language language : values()) {
            if (language.text.equals(text)) {
                return Optional.of(language);
            }
        }
        return Optional.empty();
    }

    @Override
    public String toString() {
        return text;
    }
}
