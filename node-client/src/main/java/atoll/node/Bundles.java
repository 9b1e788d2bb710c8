package atoll.node;

import atoll.core.execution.ExecutionResult;
import atoll.core.execution.MimeBundle;
import java.io.StringWriter;
import java.util.Optional;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JacksonException;
import tools.jackson.core.JsonGenerator;
import tools.jackson.core.JsonParser;
import tools.jackson.core.JsonToken;
import tools.jackson.core.ObjectReadContext;
import tools.jackson.core.ObjectWriteContext;
import tools.jackson.core.exc.StreamReadException;
import tools.jackson.core.json.JsonFactory;

/**
 * Displayed values come from inside a sandbox, so nothing about them is taken on trust: they are parsed and written anew, compact, on
 * one line. What is no JSON object is shown as text that says so.
 */
final class Bundles {
    private static final JsonFactory JSON = new JsonFactory();

    private Bundles() {}

    static ExecutionResult result(boolean main, String dataJson, long truncatedBytes) {
        try {
            return new ExecutionResult(main, parse(dataJson), truncatedBytes);
        } catch (JacksonException e) {
            String said = "[a displayed value of " + dataJson.length() + " characters was no valid JSON object]";
            return new ExecutionResult(
                    main, new MimeBundle("{\"text/plain\":\"" + said + "\"}", Optional.of(said)), truncatedBytes);
        }
    }

    private static MimeBundle parse(String json) {
        StringWriter text = new StringWriter(json.length() + 16);
        String plain = null;
        try (JsonParser parser = JSON.createParser(ObjectReadContext.empty(), json);
                JsonGenerator generator = JSON.createGenerator(ObjectWriteContext.empty(), text)) {
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                throw new StreamReadException(parser, "no object");
            }
            generator.writeStartObject();
            while (parser.nextToken() != JsonToken.END_OBJECT) {
                String type = parser.currentName();
                JsonToken value = parser.nextToken();
                if (type.equals("text/plain") && value == JsonToken.VALUE_STRING) {
                    plain = parser.getString();
                }
                generator.writeName(type);
                generator.copyCurrentStructure(parser);
            }
            generator.writeEndObject();
            if (parser.nextToken() != null) {
                throw new StreamReadException(parser, "more than one value");
            }
        }
        return new MimeBundle(text.toString(), optional(plain));
    }

    private static Optional<String> optional(@Nullable String text) {
        return Optional.ofNullable(text);
    }
}
