package atoll.core.template;

import atoll.core.AtollException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.regex.Pattern;

/** What {@code RUN --mount=type=secret} gives to steps, by id. Lives as long as its build; never on record, never shown. */
public record BuildSecrets(Map<String, String> byId) {
    public static final BuildSecrets NONE = new BuildSecrets(Map.of());
    private static final int MOST = 32;
    private static final int LONGEST = 64 << 10;
    private static final Pattern ID = Pattern.compile("[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}");

    public BuildSecrets {
        byId = Map.copyOf(byId);
        if (byId.size() > MOST) {
            throw AtollException.invalid(
                    "secrets: " + byId.size() + " (expected: at most " + MOST + ")", "Name fewer.");
        }
        byId.forEach((id, value) -> {
            if (!ID.matcher(id).matches()) {
                throw AtollException.invalid(
                        "secrets: \"" + TemplateDefinition.shown(id)
                                + "\" (expected: 1 to 64 of a-z, A-Z, 0-9, _, . and -)",
                        "Name it otherwise, here and in the Dockerfile.");
            }
            if (value.getBytes(StandardCharsets.UTF_8).length > LONGEST) {
                throw AtollException.invalid(
                        "secrets." + id + ": longer than " + LONGEST + " bytes (expected: at most that)",
                        "Give it less.");
            }
        });
    }

    @Override
    public String toString() {
        return "secrets " + byId.keySet();
    }
}
