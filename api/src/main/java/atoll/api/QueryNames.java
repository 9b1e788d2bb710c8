package atoll.api;

import atoll.core.AtollException;
import atoll.http.Exchange;
import atoll.http.Json;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import tools.jackson.databind.JsonNode;

/**
 * Refuses query parameters that a route does not know, as {@link Fields} does with fields: {@code ?append=true} on an upload, were it ignored, would replace the file
 * that it was to be added to. What a route knows stands in the OpenAPI document.
 */
final class QueryNames {
    private final Map<String, Set<String>> byRoute;

    QueryNames(byte[] openApi) {
        Map<String, Set<String>> known = new HashMap<>();
        JsonNode document = Json.mapper().readTree(openApi);
        for (Map.Entry<String, JsonNode> path : document.get("paths").properties()) {
            for (Map.Entry<String, JsonNode> operation : path.getValue().properties()) {
                var names = new TreeSet<String>();
                for (JsonNode parameter : operation.getValue().path("parameters")) {
                    if (parameter.get("in").stringValue().equals("query")) {
                        String name = parameter.get("name").stringValue();
                        boolean spread =
                                parameter.at("/schema/type").asString("").equals("object");
                        names.add(spread ? name + ".NAME" : name);
                    }
                }
                known.put(operation.getKey().toUpperCase(Locale.ROOT) + " " + path.getKey(), names);
            }
        }
        byRoute = Map.copyOf(known);
    }

    void check(Exchange exchange) {
        String method = exchange.method().equals("HEAD") ? "GET" : exchange.method();
        // The dashboard has the same routes below a path of its own.
        String pattern =
                exchange.pattern().substring(Math.max(0, exchange.pattern().indexOf("/v1/")));
        Set<String> known = byRoute.getOrDefault(method + " " + pattern, Set.of());
        for (String name : exchange.queryNames()) {
            if (!known.contains(name) && !known.contains(name.substring(0, name.indexOf('.') + 1) + "NAME")) {
                throw AtollException.invalid(
                        "unknown query parameter \"%s\""
                                .formatted(name.length() > 64 ? name.substring(0, 64) + "…" : name),
                        known.isEmpty() ? "This call takes none." : "Known ones are " + String.join(", ", known) + ".");
            }
        }
    }
}
