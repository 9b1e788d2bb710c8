package atoll.api;

import atoll.core.AtollException;
import atoll.core.sandbox.Term;
import atoll.core.template.LimitChanges;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeSet;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.MissingNode;

/**
 * The fields of a caller's JSON object. Strict: a field that is not known is refused, since a misspelt {@code sandbox_id} that is ignored would run the code in
 * another sandbox and lose the caller's state without a word.
 */
final class Fields {
    private static final Set<String> LIMITS =
            Set.of("memory_bytes", "cpu", "disk_bytes", "max_processes", "max_open_files");

    private static final int MOST_CPUS = 1024;

    private final JsonNode object;

    Fields(JsonNode node, Set<String> known) {
        if (!node.isObject()) {
            throw AtollException.invalid(
                    "the request is %s (expected: an object)".formatted(typeOf(node)), "Send a JSON object.");
        }
        this.object = node;
        for (String name : node.propertyNames()) {
            if (!known.contains(name)) {
                throw AtollException.invalid(
                        "unknown field \"%s\"".formatted(shortened(name)),
                        "Known fields are " + String.join(", ", new TreeSet<>(known)) + ".");
            }
        }
    }

    /** Whether something is said, be it null. */
    boolean has(String name) {
        return object.has(name);
    }

    boolean isNull(String name) {
        JsonNode value = object.get(name);
        return value == null || value.isNull();
    }

    String requiredText(String name) {
        return text(name)
                .orElseThrow(() -> AtollException.invalid(
                        name + " is missing (expected: a string)", "Send " + name + " in the request."));
    }

    Optional<String> text(String name) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            return Optional.empty();
        }
        if (!value.isString()) {
            throw wrongType(name, value, "a string");
        }
        return Optional.of(wellFormed(name, value.stringValue()));
    }

    /** A list of texts; empty if it is not there. */
    Optional<List<String>> textList(String name) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            return Optional.empty();
        }
        if (!value.isArray()) {
            throw wrongType(name, value, "an array of strings");
        }
        var texts = new ArrayList<String>();
        for (JsonNode item : value) {
            if (!item.isString()) {
                throw wrongType(name + "[" + texts.size() + "]", item, "a string");
            }
            texts.add(wellFormed(name, item.stringValue()));
        }
        return Optional.of(texts);
    }

    /** An object of its own, with these fields. */
    Optional<Fields> object(String name, Set<String> known) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            return Optional.empty();
        }
        if (!value.isObject()) {
            throw wrongType(name, value, "an object");
        }
        return Optional.of(new Fields(value, known));
    }

    /** A text, or a whole number as its text. */
    Optional<String> textOrNumber(String name) {
        JsonNode value = object.get(name);
        return value != null && value.isIntegralNumber() ? Optional.of(shortened(value.toString())) : text(name);
    }

    OptionalInt smallNumber(String name) {
        return asInt(wholeNumber(name, 1 << 20));
    }

    boolean flag(String name) {
        return flag(name, false);
    }

    /** Empty if it is not there. */
    Optional<Boolean> optionalFlag(String name) {
        JsonNode value = object.get(name);
        return value == null || value.isNull() ? Optional.empty() : Optional.of(flag(name));
    }

    boolean flag(String name, boolean otherwise) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            return otherwise;
        }
        if (!value.isBoolean()) {
            throw wrongType(name, value, "true or false");
        }
        return value.booleanValue();
    }

    int wholeNumber(String name, int otherwise, int least, int most) {
        OptionalLong value = wholeNumber(name, most);
        if (value.isPresent() && value.getAsLong() < least) {
            throw AtollException.invalid(
                    "%s: %d (expected: a whole number from %d to %d)".formatted(name, value.getAsLong(), least, most),
                    "Correct the value.");
        }
        return (int) value.orElse(otherwise);
    }

    /** The items of an array that must be there. */
    List<JsonNode> nodes(String name) {
        JsonNode value = object.get(name);
        if (value == null || !value.isArray()) {
            throw wrongType(name, value == null ? MissingNode.getInstance() : value, "an array");
        }
        var items = new ArrayList<JsonNode>();
        value.forEach(items::add);
        return items;
    }

    Optional<Duration> seconds(String name) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            return Optional.empty();
        }
        if (!value.isNumber()) {
            throw wrongType(name, value, "a number of seconds");
        }
        double seconds = value.doubleValue();
        if (!(seconds >= 0.001 && seconds <= 1e7)) {
            throw AtollException.invalid(
                    "%s: %s (expected: 0.001 to 10000000)".formatted(name, shortened(value.toString())),
                    "Correct the value.");
        }
        return Optional.of(Duration.ofMillis(Math.round(seconds * 1000)));
    }

    /**
     * A length of time in whole seconds, or null for none. Empty if it is not there.
     *
     * @param zeroIsNone whether 0 is another word for none
     */
    Optional<Term> term(String name, boolean zeroIsNone) {
        JsonNode value = object.get(name);
        if (value == null) {
            return Optional.empty();
        }
        if (value.isNull()) {
            return Optional.of(Term.NONE);
        }
        if (!value.isNumber()) {
            throw wrongType(name, value, "a number of seconds, or null for none");
        }
        double seconds = value.doubleValue();
        if (zeroIsNone && seconds == 0) {
            return Optional.of(Term.NONE);
        }
        if (!(seconds >= 1 && seconds <= Term.LONGEST.toSeconds()) || seconds != Math.rint(seconds)) {
            throw AtollException.invalid(
                    "%s: %s (expected: whole seconds from 1 to %d, or %s for none)"
                            .formatted(
                                    name,
                                    shortened(value.toString()),
                                    Term.LONGEST.toSeconds(),
                                    zeroIsNone ? "0" : "null"),
                    "Correct the value.");
        }
        return Optional.of(Term.of(Duration.ofSeconds((long) seconds)));
    }

    /** Limits of a sandbox; CPU in CPUs, 0 for no limit. */
    LimitChanges limits(String name) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            return LimitChanges.NONE;
        }
        if (!value.isObject()) {
            throw wrongType(name, value, "an object");
        }
        var limits = new Fields(value, LIMITS);
        return new LimitChanges(
                limits.wholeNumber("memory_bytes", 1L << 50),
                limits.thousandths("cpu"),
                limits.wholeNumber("disk_bytes", 1L << 50),
                asInt(limits.wholeNumber("max_processes", 1 << 20)),
                asInt(limits.wholeNumber("max_open_files", 1 << 20)));
    }

    private static OptionalInt asInt(OptionalLong value) {
        return value.isPresent() ? OptionalInt.of((int) value.getAsLong()) : OptionalInt.empty();
    }

    private OptionalLong wholeNumber(String name, long most) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            return OptionalLong.empty();
        }
        if (!value.isNumber()) {
            throw wrongType(name, value, "a whole number");
        }
        double number = value.doubleValue();
        if (!(number >= 0 && number <= most) || number != Math.rint(number)) {
            throw AtollException.invalid(
                    "%s: %s (expected: a whole number from 0 to %d)".formatted(name, shortened(value.toString()), most),
                    "Correct the value.");
        }
        return OptionalLong.of((long) number);
    }

    private OptionalInt thousandths(String name) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            return OptionalInt.empty();
        }
        if (!value.isNumber()) {
            throw wrongType(name, value, "a number of CPUs");
        }
        double number = value.doubleValue();
        if (!(number >= 0 && number <= MOST_CPUS) || (number > 0 && Math.round(number * 1000) == 0)) {
            throw AtollException.invalid(
                    "%s: %s (expected: 0 for no limit, or up to %d)"
                            .formatted(name, shortened(value.toString()), MOST_CPUS),
                    "Correct the value.");
        }
        return OptionalInt.of((int) Math.round(number * 1000));
    }

    /** Texts by name; a null is an empty one. */
    Map<String, Optional<String>> optionalTexts(String name) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            return Map.of();
        }
        if (!value.isObject()) {
            throw wrongType(name, value, "an object of strings and nulls");
        }
        var texts = new LinkedHashMap<String, Optional<String>>();
        for (Map.Entry<String, JsonNode> entry : value.properties()) {
            JsonNode text = entry.getValue();
            if (!text.isString() && !text.isNull()) {
                throw wrongType(name + "." + shortened(entry.getKey()), text, "a string or null");
            }
            texts.put(
                    wellFormed(name, entry.getKey()),
                    text.isNull() ? Optional.empty() : Optional.of(wellFormed(name, text.stringValue())));
        }
        return texts;
    }

    Map<String, String> texts(String name) {
        JsonNode value = object.get(name);
        if (value == null || value.isNull()) {
            return Map.of();
        }
        if (!value.isObject()) {
            throw wrongType(name, value, "an object of strings");
        }
        var texts = new LinkedHashMap<String, String>();
        for (Map.Entry<String, JsonNode> entry : value.properties()) {
            if (!entry.getValue().isString()) {
                throw wrongType(name + "." + shortened(entry.getKey()), entry.getValue(), "a string");
            }
            texts.put(
                    wellFormed(name, entry.getKey()),
                    wellFormed(name, entry.getValue().stringValue()));
        }
        return texts;
    }

    /** JSON can spell half a surrogate pair, which no UTF-8 can carry on. */
    private static String wellFormed(String name, String text) {
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (!Character.isSurrogate(c)) {
                continue;
            }
            if (Character.isHighSurrogate(c) && i + 1 < text.length() && Character.isLowSurrogate(text.charAt(i + 1))) {
                i++;
                continue;
            }
            throw AtollException.invalid(
                    "%s: half a surrogate pair at character %d (expected: valid Unicode)".formatted(name, i),
                    "Send whole characters.");
        }
        return text;
    }

    private static AtollException wrongType(String name, JsonNode value, String wanted) {
        return AtollException.invalid(
                "%s: %s (expected: %s)".formatted(name, typeOf(value), wanted), "Correct the type of the field.");
    }

    private static String typeOf(JsonNode value) {
        return switch (value.getNodeType()) {
            case ARRAY -> "an array";
            case BINARY, STRING -> "a string";
            case BOOLEAN -> "a boolean";
            case NULL, MISSING -> "null";
            case NUMBER -> "a number";
            case OBJECT, POJO -> "an object";
        };
    }

    private static String shortened(String text) {
        return text.length() > 64 ? text.substring(0, 64) + "…" : text;
    }
}
