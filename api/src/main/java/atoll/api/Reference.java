package atoll.api;

import atoll.http.Exchange;
import atoll.http.Json;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import tools.jackson.databind.JsonNode;

/** What openapi.json says, for people ({@code /docs}) and for language models ({@code /llms.txt}). Both are made of it, so they are as true as it is. */
final class Reference {
    private static final String STYLE = """
            :root{color-scheme:light dark;--line:#8884;--soft:#8882}
            body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:1rem;overflow-wrap:anywhere}
            nav ul{columns:18rem;padding-left:1rem}
            article{border-top:1px solid var(--line);padding:.5rem 0}
            h3 code{font-size:1rem}
            code,pre{font-family:ui-monospace,monospace;font-size:.9em}
            table{border-collapse:collapse;width:100%}
            td,th{border-bottom:1px solid var(--line);padding:.25rem .5rem;text-align:left;vertical-align:top}
            .method{background:var(--soft);border-radius:.25rem;padding:.1rem .4rem}
            """;

    private final JsonNode document;
    private final byte[] page;
    private final byte[] text;

    Reference(byte[] openApi) {
        document = Json.mapper().readTree(openApi);
        page = html().getBytes(StandardCharsets.UTF_8);
        text = plain().getBytes(StandardCharsets.UTF_8);
    }

    void docs(Exchange exchange) throws IOException, InterruptedException {
        exchange.responseHeader(
                "Content-Security-Policy",
                "default-src 'none'; style-src 'sha256-" + hash(STYLE)
                        + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
        exchange.responseHeader("X-Content-Type-Options", "nosniff");
        exchange.responseHeader("Referrer-Policy", "no-referrer");
        exchange.bytes(200, "text/html; charset=utf-8", page);
    }

    /** The page, for tests of what is in it. */
    String page() {
        return new String(page, StandardCharsets.UTF_8);
    }

    void llms(Exchange exchange) throws IOException, InterruptedException {
        exchange.bytes(200, "text/plain; charset=utf-8", text);
    }

    private record Operation(String method, String path, JsonNode about) {
        String id() {
            return about.path("operationId").asString("");
        }

        String summary() {
            return about.path("summary").asString("");
        }

        /** The first part of the path that names something. */
        String group() {
            String[] parts = path.split("[/:]", -1);
            int at = path.startsWith("/v1/") ? 2 : 1;
            if (path.startsWith("/v1/sandboxes/{sandbox_id}/") && parts.length > 4) {
                return parts[2] + ": " + parts[4];
            }
            return parts[at].isEmpty() ? "server" : parts[at];
        }
    }

    private Map<String, List<Operation>> groups() {
        var groups = new LinkedHashMap<String, List<Operation>>();
        for (Map.Entry<String, JsonNode> path : document.path("paths").properties()) {
            for (Map.Entry<String, JsonNode> method : path.getValue().properties()) {
                var operation =
                        new Operation(method.getKey().toUpperCase(Locale.ROOT), path.getKey(), method.getValue());
                groups.computeIfAbsent(operation.group(), name -> new ArrayList<>())
                        .add(operation);
            }
        }
        return groups;
    }

    // --- For language models
    // ------------------------------------------------------------------------------------------------

    private String plain() {
        var out = new StringBuilder();
        out.append("# ").append(document.at("/info/title").asString("")).append("\n\n> ");
        out.append(document.at("/info/description").asString("")).append("""


                Send `Authorization: Bearer KEY` with each call; bodies and answers are JSON. To run code, and to go on with its state:

                    POST /v1/code_exec {"tool":"code_exec","code":"x = 1 + 1\\nprint(x)","language":"python"}
                    POST /v1/code_exec {"code":"print(x)","sandbox_id":"the sandbox_id of the first answer"}

                Errors are `{"error":{"code","message","cause","remediation"}}`; `remediation` says what to do next.
                As an MCP server: streamable HTTP at /mcp with the same key, one tool `code_exec`.

                - [OpenAPI document](/openapi.json): every field of every call
                - [Reference](/docs): the same, to read
                """);
        groups().forEach((group, operations) -> {
            out.append("\n## ").append(group).append("\n\n");
            for (Operation one : operations) {
                out.append("- `%s %s`: %s\n".formatted(one.method(), one.path(), one.summary()));
            }
        });
        return out.toString();
    }

    // --- For people
    // ---------------------------------------------------------------------------------------------------------

    private String html() {
        var out = new StringBuilder();
        String title = escape(document.at("/info/title").asString("")) + " API";
        out.append("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>")
                .append(title)
                .append("</title><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><style>")
                .append(STYLE)
                .append("</style></head><body><header><h1>")
                .append(title)
                .append(" <small>")
                .append(escape(document.at("/info/version").asString("")))
                .append("</small></h1><p>")
                .append(escape(document.at("/info/description").asString("")))
                .append(" Keys go into the header <code>Authorization: Bearer KEY</code>.")
                .append(
                        " <a href=\"/openapi.json\">openapi.json</a> · <a href=\"/llms.txt\">llms.txt</a></p></header><nav><ul>");
        Map<String, List<Operation>> groups = groups();
        groups.forEach((group, operations) -> out.append("<li><a href=\"#%s\">%s</a>"
                .formatted(escape(operations.getFirst().id()), escape(group))));
        out.append("<li><a href=\"#schemas\">schemas</a></ul></nav><main>");
        groups.forEach((group, operations) -> {
            out.append("\n<section><h2>").append(escape(group)).append("</h2>");
            operations.forEach(one -> article(out, one));
            out.append("</section>");
        });
        out.append("\n<section id=\"schemas\"><h2>schemas</h2>");
        for (Map.Entry<String, JsonNode> schema :
                document.at("/components/schemas").properties()) {
            out.append("\n<article id=\"schema-%1$s\"><h3>%1$s</h3>".formatted(escape(schema.getKey())));
            paragraph(out, schema.getValue().path("description"));
            fields(out, schema.getValue());
            out.append("</article>");
        }
        return out.append("</section></main></body></html>\n").toString();
    }

    private static void article(StringBuilder out, Operation one) {
        out.append("\n<article id=\"%s\"><h3><span class=\"method\">%s</span> <code>%s</code></h3><p>%s</p>"
                .formatted(escape(one.id()), one.method(), escape(one.path()), escape(one.summary())));
        if (one.about().path("x-scope").isString()) {
            out.append("<p>Needs a key that may <code>%s</code>.</p>"
                    .formatted(escape(one.about().path("x-scope").asString(""))));
        }
        paragraph(out, one.about().path("description"));
        if (!one.about().path("parameters").isEmpty()) {
            out.append("<table><tr><th>parameter<th>in<th>type<th>");
            for (JsonNode parameter : one.about().path("parameters")) {
                row(
                        out,
                        escape(parameter.path("name").asString("")),
                        parameter.path("in").asString("")
                                + (parameter.path("required").asBoolean(false) ? ", required" : ""),
                        type(parameter.path("schema")),
                        parameter.path("description").asString(""));
            }
            out.append("</table>");
        }
        for (Map.Entry<String, JsonNode> form :
                one.about().at("/requestBody/content").properties()) {
            out.append("<p>Body: <code>%s</code> %s</p>"
                    .formatted(escape(form.getKey()), type(form.getValue().path("schema"))));
        }
        out.append("<table><tr><th>answer<th><th>");
        for (Map.Entry<String, JsonNode> answer : one.about().path("responses").properties()) {
            var forms = new ArrayList<String>();
            for (Map.Entry<String, JsonNode> form :
                    answer.getValue().path("content").properties()) {
                forms.add("<code>%s</code> %s"
                        .formatted(escape(form.getKey()), type(form.getValue().path("schema"))));
            }
            out.append("<tr><td>%s<td>%s<td>%s"
                    .formatted(
                            escape(answer.getKey()),
                            escape(answer.getValue().path("description").asString("")),
                            String.join("<br>", forms)));
        }
        out.append("</table></article>");
    }

    private static void fields(StringBuilder out, JsonNode schema) {
        if (schema.path("properties").isEmpty()) {
            out.append("<p>").append(type(schema)).append("</p>");
            return;
        }
        var required = new ArrayList<String>();
        schema.path("required").forEach(name -> required.add(name.asString("")));
        out.append("<table><tr><th>field<th><th>type<th>");
        for (Map.Entry<String, JsonNode> field : schema.path("properties").properties()) {
            row(
                    out,
                    escape(field.getKey()),
                    required.contains(field.getKey()) ? "required" : "",
                    type(field.getValue()),
                    field.getValue().path("description").asString(""));
        }
        out.append("</table>");
    }

    private static void row(StringBuilder out, String name, String where, String type, String description) {
        out.append(
                "<tr><td><code>%s</code><td>%s<td>%s<td>%s".formatted(name, escape(where), type, escape(description)));
    }

    private static void paragraph(StringBuilder out, JsonNode text) {
        if (text.isString()) {
            out.append("<p>").append(escape(text.asString(""))).append("</p>");
        }
    }

    /** A schema in a few words, as markup: its name with a link, or its type, with what it is made of. */
    private static String type(JsonNode schema) {
        String reference = schema.path("$ref").asString("");
        if (!reference.isEmpty()) {
            String name = escape(reference.substring(reference.lastIndexOf('/') + 1));
            return "<a href=\"#schema-%1$s\">%1$s</a>".formatted(name);
        }
        for (String choice : List.of("oneOf", "anyOf", "allOf")) {
            if (schema.path(choice).isArray()) {
                return joined(schema.path(choice), choice.equals("allOf") ? " and " : " or ");
            }
        }
        if (schema.path("enum").isArray()) {
            var values = new ArrayList<String>();
            schema.path("enum").forEach(value -> values.add("<code>" + escape(value.asString("")) + "</code>"));
            return String.join(" or ", values);
        }
        if (schema.path("type").isArray()) {
            var types = new ArrayList<String>();
            schema.path("type").forEach(type -> types.add(escape(type.asString(""))));
            return String.join(" or ", types);
        }
        if (schema.path("items").isObject()) {
            return "list of " + type(schema.path("items"));
        }
        if (schema.path("additionalProperties").isObject()) {
            return "map to " + type(schema.path("additionalProperties"));
        }
        return escape(schema.path("type").asString(""));
    }

    private static String joined(JsonNode schemas, String by) {
        var parts = new ArrayList<String>();
        schemas.forEach(schema -> parts.add(type(schema)));
        return String.join(by, parts);
    }

    static String escape(String text) {
        return text.replace("&", "&amp;")
                .replace("<", "&lt;")
                .replace(">", "&gt;")
                .replace("\"", "&quot;")
                .replace("'", "&#39;");
    }

    private static String hash(String text) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
            return Base64.getEncoder().encodeToString(digest);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java has SHA-256", e);
        }
    }
}
