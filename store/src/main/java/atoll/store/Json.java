package atoll.store;

import atoll.core.ContextId;
import atoll.core.Language;
import atoll.core.execution.ChangedFile;
import atoll.core.execution.ChangedFiles;
import atoll.core.execution.ExecutionResult;
import atoll.core.execution.MimeBundle;
import atoll.core.snapshot.Snapshot;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
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

    static String ofNamed(StoreBackup.Named named) {
        ObjectNode all = MAPPER.createObjectNode();
        ArrayNode sandboxes = all.putArray("sandboxes");
        for (StoreBackup.NamedSandbox sandbox : named.sandboxes()) {
            ObjectNode item = sandboxes.addObject();
            item.put("id", sandbox.id());
            sandbox.name().ifPresent(name -> item.put("name", name));
            item.put("state", sandbox.state());
            item.put("box", sandbox.box());
            sandbox.pausedIn().ifPresent(snapshot -> item.put("paused_in", snapshot));
        }
        ArrayNode snapshots = all.putArray("snapshots");
        for (StoreBackup.NamedSnapshot snapshot : named.snapshots()) {
            ObjectNode item = snapshots.addObject();
            item.put("id", snapshot.id());
            snapshot.name().ifPresent(name -> item.put("name", name));
            item.put("state", snapshot.state());
            snapshot.sandbox().ifPresent(sandbox -> item.put("sandbox", sandbox));
        }
        ArrayNode images = all.putArray("images");
        named.images().forEach(images::add);
        return all.toString();
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

    /** What was displayed: a list, or an object that holds it beside the files that were changed. */
    static String ofResults(List<ExecutionResult> results, Optional<ChangedFiles> files) {
        if (files.isEmpty()) {
            return results.isEmpty() ? "[]" : MAPPER.writeValueAsString(array(results));
        }
        ObjectNode both = MAPPER.createObjectNode();
        both.set("results", array(results));
        ArrayNode listed = both.putArray("files");
        for (ChangedFile file : files.get().files()) {
            listed.addObject()
                    .put("path", file.path())
                    .put("size", file.sizeBytes())
                    .put("modified", file.modifiedAt().toEpochMilli());
        }
        both.put("incomplete", files.get().incomplete());
        return MAPPER.writeValueAsString(both);
    }

    private static ArrayNode array(List<ExecutionResult> results) {
        ArrayNode array = MAPPER.createArrayNode();
        for (ExecutionResult result : results) {
            ObjectNode item = array.addObject();
            item.put("main", result.main());
            item.put("truncated_bytes", result.truncatedBytes());
            item.put("data", result.data().json());
            result.data().plainText().ifPresent(text -> item.put("plain", text));
            if (!result.metadata().equals(ExecutionResult.NO_METADATA)) {
                item.put("metadata", result.metadata());
            }
            if (!result.leftOut().isEmpty()) {
                ObjectNode leftOut = item.putObject("left_out");
                result.leftOut().forEach(leftOut::put);
            }
            result.displayId().ifPresent(id -> item.put("display_id", id));
        }
        return array;
    }

    static List<ExecutionResult> toResults(String json) {
        if (json.isEmpty() || json.equals("[]")) {
            return List.of();
        }
        JsonNode stored = MAPPER.readTree(json);
        List<ExecutionResult> results = new ArrayList<>();
        for (JsonNode item : stored.isArray() ? stored : stored.get("results")) {
            Map<String, Long> leftOut = new HashMap<>();
            if (item.has("left_out")) {
                item.get("left_out")
                        .properties()
                        .forEach(entry ->
                                leftOut.put(entry.getKey(), entry.getValue().asLong()));
            }
            results.add(new ExecutionResult(
                    item.get("main").asBoolean(),
                    new MimeBundle(item.get("data").asString(), text(item, "plain")),
                    item.get("truncated_bytes").asLong(),
                    text(item, "metadata").orElse(ExecutionResult.NO_METADATA),
                    leftOut,
                    text(item, "display_id"),
                    false,
                    false));
        }
        return results;
    }

    static Optional<ChangedFiles> toFiles(String json) {
        if (!json.startsWith("{")) {
            return Optional.empty();
        }
        JsonNode stored = MAPPER.readTree(json);
        List<ChangedFile> files = new ArrayList<>();
        for (JsonNode file : stored.get("files")) {
            files.add(new ChangedFile(
                    file.get("path").asString(),
                    file.get("size").asLong(),
                    Instant.ofEpochMilli(file.get("modified").asLong())));
        }
        return Optional.of(new ChangedFiles(files, stored.get("incomplete").asBoolean()));
    }

    private static Optional<String> text(JsonNode item, String name) {
        return item.has(name) ? Optional.of(item.get(name).asString()) : Optional.empty();
    }
}
