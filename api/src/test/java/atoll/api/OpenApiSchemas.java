package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.http.Json;
import com.networknt.schema.InputFormat;
import com.networknt.schema.Schema;
import com.networknt.schema.SchemaRegistry;
import com.networknt.schema.SpecificationVersion;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/** The schemas of openapi.json, to hold answers against. */
final class OpenApiSchemas {
    private final JsonNode document;

    OpenApiSchemas(JsonNode document) {
        this.document = document;
    }

    void fits(String name, JsonNode answer) {
        assertThat(schema(named(name)).validate(Json.text(answer), InputFormat.JSON))
                .as("%s: %s", name, answer)
                .isEmpty();
    }

    static JsonNode named(String name) {
        return Json.mapper().createObjectNode().put("$ref", "#/components/schemas/" + name);
    }

    Schema schema(JsonNode schema) {
        ObjectNode whole = Json.mapper().createObjectNode();
        whole.set("components", document.get("components"));
        whole.set("allOf", Json.mapper().createArrayNode().add(schema));
        return SchemaRegistry.withDefaultDialect(SpecificationVersion.DRAFT_2020_12)
                .getSchema(Json.text(whole), InputFormat.JSON);
    }
}
