package atoll.store;

import atoll.core.ContextId;
import atoll.core.Language;
import atoll.core.execution.ExecutionResult;
import atoll.core.execution.MimeBundle;
import atoll.core.snapshot.Snapshot;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/** The columns that hold JSON. */
final class Json {
    private static final JsonMapper MAPPER = JsonMapper.builder().build();

    private Json() {}

    static String ofMap(Map<String, String> map) {
        return map.isEmpty() ? "{}" : MAPPER.writeValueAsString(new TreeMap<>(map));
    }

    static Map<String, String> toMap(String json) {
        Map<String, String> map = new TreeMap<>();
        if (!json.equals("{}")) {
            MAPPER.readTree(json)
                    .properties()
                    .forEach(entry -> map.put(entry.getKey(), entry.getValue().asString()));
        }
        return map;
    }

    static String ofList(List<String> list) {
        return MAPPER.writeValueAsString(list);
    }

    static List<String> toList(String json) {
        List<String> list = new ArrayList<>();
        for (JsonNode item : MAPPER.readTree(json)) {
            list.add(item.asString());
        }
        return list;
    }

    static String ofHeld(List<Snapshot.Held> contexts) {
        ArrayNode array = MAPPER.createArrayNode();
        for (Snapshot.Held context : contexts) {
            ObjectNode item = array.addObject();
            item.put("id", context.id().toString());
            item.put("language", context.language().toString());
            item.put("default", context.isDefault());
            item.put("cwd", context.cwd());
            ObjectNode env = item.putObject("env");
            context.env().forEach(env::put);
        }
        return MAPPER.writeValueAsString(array);
    }

    static List<Snapshot.Held> toHeld(String json) {
        List<Snapshot.Held> contexts = new ArrayList<>();
        for (JsonNode item : MAPPER.readTree(json)) {
            Map<String, String> env = new TreeMap<>();
            item.get("env")
                    .properties()
                    .forEach(entry -> env.put(entry.getKey(), entry.getValue().asString()));
            contexts.add(new Snapshot.Held(
                    ContextId.parse(item.get("id").asString()),
                    Language.parse(item.get("language").asString()),
                    item.get("default").asBoolean(),
                    item.get("cwd").asString(),
                    env));
        }
        return contexts;
    }

    static String ofResults(List<ExecutionResult> results) {
        if (results.isEmpty()) {
            return "[]";
        }
        ArrayNode array = MAPPER.createArrayNode();
        for (ExecutionResult result : results) {
            ObjectNode item = array.addObject();
            item.put("main", result.main());
            item.put("truncated_bytes", result.truncatedBytes());
            item.put("data", result.data().json());
            result.data().plainText().ifPresent(text -> item.put("plain", text));
        }
        return MAPPER.writeValueAsString(array);
    }

    static List<ExecutionResult> toResults(String json) {
        if (json.isEmpty() || json.equals("[]")) {
            return List.of();
        }
        List<ExecutionResult> results = new ArrayList<>();
        for (JsonNode item : MAPPER.readTree(json)) {
            Optional<String> plain =
                    item.has("plain") ? Optional.of(item.get("plain").asString()) : Optional.empty();
            results.add(new ExecutionResult(
                    item.get("main").asBoolean(),
                    new MimeBundle(item.get("data").asString(), plain),
                    item.get("truncated_bytes").asLong()));
        }
        return results;
    }
}
