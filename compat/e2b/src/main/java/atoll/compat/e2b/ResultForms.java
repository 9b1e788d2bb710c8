package atoll.compat.e2b;

import java.util.Map;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.NullNode;
import tools.jackson.databind.node.ObjectNode;

/** A result's MIME bundle as this protocol's fields: known types have one of their own, others go below {@code extra}. */
final class ResultForms {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final String CHART = "application/vnd.atoll.chart.v1+json";
    private static final String TABLE = "application/vnd.atoll.table.v1+json";

    private static final Map<String, String> FIELDS = Map.ofEntries(
            Map.entry("text/plain", "text"),
            Map.entry("text/html", "html"),
            Map.entry("text/markdown", "markdown"),
            Map.entry("image/svg+xml", "svg"),
            Map.entry("image/png", "png"),
            Map.entry("image/jpeg", "jpeg"),
            Map.entry("application/pdf", "pdf"),
            Map.entry("text/latex", "latex"),
            Map.entry("application/json", "json"),
            Map.entry("application/javascript", "javascript"),
            Map.entry("text/javascript", "javascript"),
            Map.entry("e2b/data", "data"),
            Map.entry("e2b/chart", "chart"));

    private ResultForms() {}

    /** Adds the fields to {@code line}. */
    static void put(ObjectNode line, JsonNode bundle) {
        ObjectNode extra = NODES.objectNode();
        for (Map.Entry<String, JsonNode> form : bundle.properties()) {
            String type = form.getKey();
            JsonNode value = form.getValue();
            String field = FIELDS.get(type);
            if (type.equals(CHART) && value.isObject()) {
                line.set("chart", chart(value));
            } else if (type.equals(TABLE) && value.isObject()) {
                table(line, extra, value);
            } else if (field == null) {
                extra.set(type, value);
            } else if (field.equals("text")) {
                line.put("text", unquoted(value.asString()));
            } else {
                line.set(field, value);
            }
        }
        if (!extra.isEmpty()) {
            line.set("extra", extra);
        }
    }

    /** A text's outer quotes are left out. */
    private static String unquoted(String text) {
        char first = text.isEmpty() ? ' ' : text.charAt(0);
        boolean quoted =
                text.length() >= 2 && (first == '\'' || first == '"') && text.charAt(text.length() - 1) == first;
        return quoted ? text.substring(1, text.length() - 1) : text;
    }

    /** The SDKs read every key of a kind, and drop a chart that lacks one. */
    private static ObjectNode chart(JsonNode chart) {
        String type = chart.path("type").asString("unknown");
        ObjectNode view = NODES.objectNode()
                .put("type", type.equals("box") ? "box_and_whisker" : type)
                .put("title", text(chart, "title"));
        var elements = view.putArray("elements");
        for (JsonNode element : chart.path("elements")) {
            elements.add(type.equals("superchart") ? chart(element) : element(type, element));
        }
        if (!type.equals("superchart") && !type.equals("pie")) {
            boolean points = type.equals("line") || type.equals("scatter");
            axis(view, "x", chart.path("x_axis"), points);
            axis(view, "y", chart.path("y_axis"), points);
        }
        return view;
    }

    /** What this protocol names of one; the rest of it is another's. */
    private static ObjectNode element(String type, JsonNode element) {
        ObjectNode view = NODES.objectNode();
        for (String name : names(type)) {
            view.set(name, present(element.get(name)));
        }
        return view;
    }

    private static String[] names(String type) {
        return switch (type) {
            case "line", "scatter" -> new String[] {"label", "points"};
            case "bar" -> new String[] {"label", "group", "value"};
            case "pie" -> new String[] {"label", "angle", "radius"};
            case "box" ->
                new String[] {"label", "min", "first_quartile", "median", "third_quartile", "max", "outliers"};
            default -> new String[0];
        };
    }

    private static void axis(ObjectNode view, String name, JsonNode axis, boolean points) {
        view.put(name + "_label", text(axis, "label")).put(name + "_unit", text(axis, "unit"));
        if (points) {
            view.set(name + "_ticks", list(axis, "ticks"));
            view.set(name + "_tick_labels", list(axis, "tick_labels"));
            view.put(name + "_scale", axis.path("scale").asString("linear"));
        }
    }

    private static @Nullable String text(JsonNode object, String name) {
        JsonNode value = object.get(name);
        return value == null || value.isNull() ? null : value.asString();
    }

    private static JsonNode list(JsonNode object, String name) {
        JsonNode value = object.get(name);
        return value != null && value.isArray() ? value : NODES.arrayNode();
    }

    private static JsonNode present(@Nullable JsonNode value) {
        return value == null ? NullNode.getInstance() : value;
    }

    /** Columns by their names, as this protocol knows tables. It can't say that rows are missing, so of a table that was cut it gets the table itself. */
    private static void table(ObjectNode line, ObjectNode extra, JsonNode table) {
        if (table.path("truncated").asBoolean(false)) {
            extra.set(TABLE, table);
            return;
        }
        ObjectNode data = line.putObject("data");
        for (JsonNode column : table.path("columns")) {
            data.set(column.path("name").asString(), list(column, "values"));
        }
    }
}
