package atoll.http;

import java.nio.charset.StandardCharsets;
import tools.jackson.core.JacksonException;
import tools.jackson.core.StreamReadConstraints;
import tools.jackson.core.TokenStreamLocation;
import tools.jackson.core.json.JsonFactory;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.MapperFeature;
import tools.jackson.databind.PropertyNamingStrategies;
import tools.jackson.databind.json.JsonMapper;

/** JSON as Atoll speaks it: snake_case, fields in declared order, strict reading. */
public final class Json {
    private static final JsonMapper MAPPER = JsonMapper.builder(JsonFactory.builder()
                    .streamReadConstraints(StreamReadConstraints.builder()
                            .maxNestingDepth(64)
                            .maxStringLength(64 << 20)
                            .maxNumberLength(64)
                            .build())
                    .build())
            .propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
            .disable(MapperFeature.SORT_PROPERTIES_ALPHABETICALLY)
            .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
            .enable(DeserializationFeature.FAIL_ON_READING_DUP_TREE_KEY)
            .build();

    private Json() {}

    public static JsonMapper mapper() {
        return MAPPER;
    }

    public static byte[] bytes(Object value) {
        return MAPPER.writeValueAsBytes(value);
    }

    public static String text(Object value) {
        return new String(bytes(value), StandardCharsets.UTF_8);
    }

    /** Reads a caller's text; a fault in it is a bad request that says where. */
    public static JsonNode parse(byte[] bytes, int length) {
        JsonNode node;
        try {
            node = MAPPER.readTree(bytes, 0, length);
        } catch (JacksonException e) {
            TokenStreamLocation at = e.getLocation();
            String where = at == null || at.getLineNr() < 1
                    ? ""
                    : " at line %d, column %d".formatted(at.getLineNr(), at.getColumnNr());
            throw new HttpFailure(new ErrorReply(
                    400,
                    "invalid_request",
                    "the request body is not valid JSON" + where,
                    e.getOriginalMessage(),
                    "send one JSON object, in UTF-8"));
        }
        if (node.isMissingNode()) {
            throw HttpFailure.badRequest(
                    "invalid_request", "the request body is empty", "send one JSON object, in UTF-8");
        }
        return node;
    }
}
