package atoll.core.template;

import atoll.core.AtollException;

/** A port that sandboxes of a template serve. */
public record TemplatePort(int port, String name) {
    public TemplatePort {
        checkPort("ports.port", port);
        if (name.length() > 64 || name.chars().anyMatch(Character::isISOControl)) {
            throw AtollException.invalid(
                    "ports.name: \"" + TemplateDefinition.shown(name) + "\" (expected: at most 64 characters)",
                    "Shorten it.");
        }
    }

    static void checkPort(String field, int port) {
        if (port < 1 || port > 65535) {
            throw AtollException.invalid(field + ": " + port + " (expected: 1 to 65535)", "Correct the port.");
        }
    }
}
