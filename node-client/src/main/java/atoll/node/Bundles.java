package atoll.node;

import atoll.core.execution.ExecutionResult;
import atoll.core.execution.MimeBundle;
import atoll.proto.exec.v1.Result;
import java.io.StringWriter;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JacksonException;
import tools.jackson.core.JsonGenerator;
import tools.jackson.core.JsonParser;
import tools.jackson.core.JsonToken;
import tools.jackson.core.ObjectReadContext;
import tools.jackson.core.ObjectWriteContext;
import tools.jackson.core.StreamReadConstraints;
import tools.jackson.core.exc.StreamReadException;
import tools.jackson.core.json.JsonFactory;

/**
 * Displayed values come from inside a sandbox, so nothing about them is taken on trust: they are parsed and written anew, compact, on
 * one line. A form that readers with the usual limits could not take is left out and counted; what is no JSON object at all is shown as
 * text that says so.
 */
final class Bundles {
    /** Deeper values, and longer numbers, are refused by many a parser, ours among them. */
    private static final int MAX_DEPTH = 200;

    private static final int MAX_NUMBER = 500;
    private static final int MAX_NAME = 1024;
    private static final int MAX_METADATA = 256 << 10;

    /** Without limits of its own: the text has one, and what is too deep or too long is passed over token by token. */
    private static final JsonFactory JSON = JsonFactory.builder()
            .streamReadConstraints(StreamReadConstraints.builder()
                    .maxNestingDepth(Integer.MAX_VALUE)
                    .maxNumberLength(Integer.MAX_VALUE)
                    .maxStringLength(Integer.MAX_VALUE)
                    .maxNameLength(Integer.MAX_VALUE)
                    .build())
            .build();

    private Bundles() {}

    static ExecutionResult result(Result told) {
        Map<String, Long> leftOut = new HashMap<>();
        told.getLeftOutMap().forEach((type, bytes) -> leftOut.put(type, Math.max(0, bytes)));
        long truncated = told.getTruncatedBytes();
        MimeBundle data;
        try {
            Forms forms = Forms.read(told.getDataJson());
            truncated += forms.leaveOut(leftOut);
            data = forms.bundle();
        } catch (JacksonException e) {
            String said =
                    "[a displayed value of " + told.getDataJson().length() + " characters was no valid JSON object]";
            data = MimeBundle.ofText(Optional.of(said));
        }
        String metadata = ExecutionResult.NO_METADATA;
        try {
            if (told.getMetadataJson().length() > MAX_METADATA) {
                truncated += told.getMetadataJson().length();
                leftOut.merge("metadata", (long) told.getMetadataJson().length(), Long::sum);
            } else if (!told.getMetadataJson().isEmpty()) {
                metadata = Forms.read(told.getMetadataJson()).bundle().json();
            }
        } catch (JacksonException e) {
            leftOut.merge("metadata", (long) told.getMetadataJson().length(), Long::sum);
        }
        return new ExecutionResult(
                told.getMain(),
                data,
                truncated,
                metadata,
                leftOut,
                Optional.of(told.getDisplayId()).filter(id -> !id.isEmpty()),
                told.getUpdate() && !told.getDisplayId().isEmpty(),
                told.getClear());
    }

    /** The members of one object. */
    private static final class Forms {
        private final StringBuilder json;
        private final Map<String, Long> sizes = new HashMap<>();
        private final Map<String, Long> refused = new HashMap<>();
        private @Nullable String plain;

        private Forms(int length) {
            json = new StringBuilder(length + 16).append('{');
        }

        static Forms read(String text) {
            Forms forms = new Forms(text.length());
            try (JsonParser parser = JSON.createParser(ObjectReadContext.empty(), text)) {
                if (parser.nextToken() != JsonToken.START_OBJECT) {
                    throw new StreamReadException(parser, "no object");
                }
                while (parser.nextToken() != JsonToken.END_OBJECT) {
                    String type = parser.currentName();
                    long begin = parser.currentLocation().getCharOffset();
                    JsonToken value = parser.nextToken();
                    if (!forms.sizes.containsKey(type)
                            && type.length() <= MAX_NAME
                            && forms.take(type, value, parser)) {
                        continue;
                    }
                    long size = parser.currentLocation().getCharOffset() - begin;
                    forms.refused.merge(type.length() <= MAX_NAME ? type : "", size, Long::sum);
                }
                if (parser.nextToken() != null) {
                    throw new StreamReadException(parser, "more than one value");
                }
            }
            forms.json.append('}');
            return forms;
        }

        /** Writes one member. False, with the value passed over, where it is not to be taken. */
        private boolean take(String type, JsonToken value, JsonParser parser) {
            StringWriter member = new StringWriter();
            boolean whole;
            String text = "";
            try (JsonGenerator generator = JSON.createGenerator(ObjectWriteContext.empty(), member)) {
                generator.writeStartObject();
                generator.writeName(type);
                if (value == JsonToken.VALUE_STRING) {
                    text = parser.getString();
                    generator.writeString(text);
                    whole = true;
                } else {
                    whole = copy(parser, generator);
                }
                if (whole) {
                    generator.writeEndObject();
                }
            }
            if (!whole) {
                return false;
            }
            StringBuffer written = member.getBuffer();
            if (json.length() > 1) {
                json.append(',');
            }
            json.append(written, 1, written.length() - 1);
            sizes.put(type, (long) written.length() - type.length() - 5);
            if (type.equals("text/plain") && value == JsonToken.VALUE_STRING) {
                plain = text;
            }
            return true;
        }

        /** Copies the value that begins here. It is read to its end in any case. */
        private static boolean copy(JsonParser parser, JsonGenerator generator) {
            int depth = 0;
            boolean fits = true;
            do {
                JsonToken token = parser.currentToken();
                if (token == null) {
                    throw new StreamReadException(parser, "the end in the middle of a value");
                }
                if (token.isStructStart()) {
                    depth++;
                    fits = fits && depth <= MAX_DEPTH;
                } else if (token.isStructEnd()) {
                    depth--;
                } else if (token.isNumeric()) {
                    fits = fits && parser.getStringLength() <= MAX_NUMBER;
                }
                if (fits && token.isNumeric()) {
                    generator.writeNumber(parser.getString()); // digit by digit, as it came
                } else if (fits) {
                    generator.copyCurrentEvent(parser);
                }
                if (depth > 0) {
                    parser.nextToken();
                }
            } while (depth > 0);
            return fits;
        }

        long leaveOut(Map<String, Long> leftOut) {
            refused.forEach((type, size) -> leftOut.merge(type, size, Long::sum));
            return refused.values().stream().mapToLong(size -> size).sum();
        }

        MimeBundle bundle() {
            return new MimeBundle(json.toString(), Optional.ofNullable(plain), sizes);
        }
    }
}
