package atoll.api;

import atoll.core.AtollException;
import atoll.http.HttpFailure;
import atoll.http.Json;
import java.nio.charset.StandardCharsets;
import tools.jackson.databind.JsonNode;

/** A text message of a WebSocket: a JSON object with a {@code type}. */
record SocketMessage(String type, JsonNode fields) {
    private static final int LONGEST = 4096;

    static SocketMessage parse(String text) {
        if (text.length() > LONGEST) {
            throw AtollException.invalid(
                    "a text message of %d characters (expected: at most %d)".formatted(text.length(), LONGEST),
                    "Send data as binary messages.");
        }
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        try {
            JsonNode node = Json.parse(bytes, bytes.length);
            JsonNode type = node.isObject() ? node.get("type") : null;
            if (type != null && type.isString()) {
                return new SocketMessage(type.stringValue(), node);
            }
        } catch (HttpFailure _) {
            // Said below.
        }
        throw AtollException.invalid(
                "a text message is no JSON object with a type", "Send data as binary messages, commands as JSON.");
    }

    AtollException unknown(String expected) {
        return AtollException.invalid(
                "type: \"%s\" (expected: %s)".formatted(type.length() > 32 ? type.substring(0, 32) : type, expected),
                "Correct the message.");
    }

    int number(String name, int least, int most) {
        JsonNode value = fields.get(name);
        if (value == null || !value.isIntegralNumber() || value.longValue() < least || value.longValue() > most) {
            throw AtollException.invalid(
                    "%s: %s (expected: a whole number from %d to %d)".formatted(name, value, least, most),
                    "Correct the message.");
        }
        return value.intValue();
    }

    /** A text, or a number as its text. */
    String text(String name) {
        JsonNode value = fields.get(name);
        if (value != null && value.isString()) {
            return value.stringValue();
        }
        if (value != null && value.isIntegralNumber()) {
            return value.toString();
        }
        throw AtollException.invalid(
                "%s: %s (expected: a text)".formatted(name, value == null ? "missing" : value.getNodeType()),
                "Correct the message.");
    }
}
