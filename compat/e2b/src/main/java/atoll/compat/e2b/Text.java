package atoll.compat.e2b;

import atoll.core.AtollException;
import atoll.core.SandboxId;
import java.time.Instant;
import java.time.format.DateTimeFormatter;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import tools.jackson.databind.JsonNode;

/** How ids, times and fields stand in this protocol. */
final class Text {
    private Text() {}

    /** Lower-case letters and digits only, since host names split at the dash: the 26 characters of the id without its prefix. */
    static String id(SandboxId id) {
        return id.toString().substring(SandboxId.PREFIX.length());
    }

    /** Fails with {@code SANDBOX_NOT_FOUND} for what can be no id of ours. */
    static SandboxId sandbox(String text) {
        return SandboxId.parse(SandboxId.PREFIX + text);
    }

    static String time(Instant at) {
        return DateTimeFormatter.ISO_INSTANT.format(at);
    }

    /** A field of text; empty where it is missing, null or something else. */
    static Optional<String> text(JsonNode object, String name) {
        JsonNode value = object.get(name);
        return value != null && value.isString() ? Optional.of(value.stringValue()) : Optional.empty();
    }

    static String required(JsonNode object, String name) {
        return text(object, name).filter(value -> !value.isEmpty()).orElseThrow(() -> invalid(name + " is missing"));
    }

    static boolean flag(JsonNode object, String name) {
        JsonNode value = object.get(name);
        return value != null && value.isBoolean() && value.booleanValue();
    }

    /** A number, or text of one: 64-bit numbers come as text. */
    static Optional<Long> number(JsonNode object, String name) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            return Optional.empty();
        }
        if (value.isIntegralNumber() && value.canConvertToLong()) {
            return Optional.of(value.longValue());
        }
        try {
            return Optional.of(Long.parseLong(value.isString() ? value.stringValue() : value.toString()));
        } catch (NumberFormatException e) {
            throw invalid("%s: %s (expected: a whole number)".formatted(name, value));
        }
    }

    /** An object of texts; values that are no text are taken as they are written. */
    static Map<String, String> texts(JsonNode object, String name) {
        Map<String, String> texts = new LinkedHashMap<>();
        JsonNode value = object.get(name);
        if (value != null && value.isObject()) {
            for (Map.Entry<String, JsonNode> field : value.properties()) {
                texts.put(
                        field.getKey(),
                        field.getValue().isString()
                                ? field.getValue().stringValue()
                                : field.getValue().toString());
            }
        }
        return texts;
    }

    /** What somebody sent, as errors name it. */
    static String shown(String text) {
        return text.length() > 128 ? text.substring(0, 128) + "…" : text;
    }

    static AtollException invalid(String message) {
        return AtollException.invalid(message, "Correct the request.");
    }
}
