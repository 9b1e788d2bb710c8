package atoll.api;

import atoll.core.AtollException;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionResult;
import atoll.core.execution.ExitReason;
import atoll.http.Json;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/** The tool {@code code_exec} as MCP describes and answers it. */
final class McpTool {
    static final String NAME = "code_exec";
    /** What a model reads is kept to this many characters per text; the rest stays readable at the output endpoint. */
    private static final int MAX_TEXT = 64 << 10;

    /** So many files are named in the text; all are in the structured content. */
    private static final int MAX_FILES = 50;

    /** Models take no larger pictures than some 5 MB. */
    private static final int MAX_IMAGE = 5 << 20;

    private McpTool() {}

    static JsonNode description() {
        return Description.TOOL;
    }

    private static final class Description {
        static final JsonNode TOOL = read();

        private static JsonNode read() {
            try (InputStream text = McpTool.class.getResourceAsStream("mcp-tool.json")) {
                if (text == null) {
                    throw new IllegalStateException("mcp-tool.json is missing in the jar");
                }
                return Json.mapper().readTree(text);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    static Map<String, Object> result(ExecutionOutcome outcome) {
        Wire.Outcome whole = Wire.Outcome.of(outcome);
        boolean cut = whole.output().length() > MAX_TEXT
                || whole.stdout().length() > MAX_TEXT
                || whole.stderr().length() > MAX_TEXT;
        var content = new ArrayList<Map<String, Object>>();
        List<Wire.Result> results =
                outcome.results().stream().map(result -> shown(result, content)).toList();
        Wire.Outcome shown = cut || !results.equals(whole.results())
                ? whole.with(
                        shortened(whole.output()), shortened(whole.stdout()), shortened(whole.stderr()), cut, results)
                : whole;
        content.addFirst(text(forModel(outcome, shown)));
        var result = new LinkedHashMap<String, Object>();
        result.put("content", content);
        result.put("structuredContent", shown);
        result.put("isError", failed(outcome));
        return result;
    }

    /** What Atoll itself refuses: the model gets to read it, so that it can do better. */
    static Map<String, Object> refusal(AtollException failure) {
        var lines = new ArrayList<String>();
        lines.add(ErrorTable.code(failure.code()) + ": " + failure.message());
        lines.add(failure.reason());
        lines.add(failure.remediation());
        lines.removeIf(String::isEmpty);
        var result = new LinkedHashMap<String, Object>();
        result.put("content", List.of(text(String.join("\n", lines))));
        result.put("isError", true);
        return result;
    }

    private static boolean failed(ExecutionOutcome outcome) {
        boolean exitedWell =
                outcome.exitReason() == ExitReason.EXITED && outcome.exitCode().orElse(0) == 0;
        return outcome.exitReason() != ExitReason.COMPLETED && !exitedWell;
    }

    private static String forModel(ExecutionOutcome outcome, Wire.Outcome shown) {
        var lines = new ArrayList<String>();
        // Holds displayed values and the traceback too, as a terminal would.
        lines.add(shown.output());
        lines.removeIf(String::isEmpty);
        if (lines.isEmpty()) {
            lines.add("(no output)");
        }
        if (outcome.exitReason() != ExitReason.COMPLETED && outcome.exitReason() != ExitReason.ERROR) {
            lines.add(("[" + outcome.exitReason().text() + "] " + outcome.detail()).strip());
        }
        boolean ended = outcome.exitReason() == ExitReason.COMPLETED || outcome.exitReason() == ExitReason.EXITED;
        if (ended && outcome.exitCode().orElse(0) != 0) {
            lines.add("[exit code " + outcome.exitCode().getAsInt() + "]");
        }
        if (!outcome.stateKept()) {
            lines.add("[the interpreter was started afresh: variables and imports are gone, files are not]");
        }
        shown.files().ifPresent(files -> {
            if (!files.isEmpty()) {
                lines.add("[files: "
                        + files.stream()
                                .limit(MAX_FILES)
                                .map(file -> file.path() + " (" + file.size() + " bytes)")
                                .collect(Collectors.joining(", "))
                        + (files.size() > MAX_FILES ? ", …]" : "]"));
            }
        });
        lines.add("[sandbox_id: " + shown.sandboxId() + "]");
        return String.join("\n", lines);
    }

    /** The result as a model gets it: pictures as content of their own, no other binary data, and no form that nobody would read. */
    private static Wire.Result shown(ExecutionResult result, List<Map<String, Object>> content) {
        String json = result.data().json();
        boolean plain =
                json.length() <= MAX_TEXT && !json.contains("\"image/") && !json.contains("\"application/pdf\"");
        if (plain) {
            return Wire.Result.of(result);
        }
        var data = (ObjectNode) Json.mapper().readTree(json);
        var leftOut = new TreeMap<>(result.leftOut());
        long truncated = result.truncatedBytes();
        for (Map.Entry<String, JsonNode> form : Json.mapper().readTree(json).properties()) {
            String type = form.getKey();
            boolean binary =
                    (type.startsWith("image/") && !type.equals("image/svg+xml")) || type.equals("application/pdf");
            long size = form.getValue().isString()
                    ? form.getValue().stringValue().length()
                    : Json.text(form.getValue()).length();
            if (binary && !type.equals("application/pdf") && form.getValue().isString() && size <= MAX_IMAGE) {
                content.add(image(type, form.getValue().stringValue()));
                data.remove(type);
            } else if (binary || size > MAX_TEXT) {
                data.remove(type);
                leftOut.merge(type, size, Long::sum);
                truncated += size;
            }
        }
        return new Wire.Result(
                result.main(),
                Json.text(data),
                result.metadata(),
                truncated,
                leftOut,
                result.displayId(),
                false,
                false);
    }

    private static Map<String, Object> image(String type, String base64) {
        var image = new LinkedHashMap<String, Object>();
        image.put("type", "image");
        image.put("data", base64.replace("\n", ""));
        image.put("mimeType", type);
        return image;
    }

    private static Map<String, Object> text(String text) {
        var block = new LinkedHashMap<String, Object>();
        block.put("type", "text");
        block.put("text", text);
        return block;
    }

    private static String shortened(String text) {
        if (text.length() <= MAX_TEXT) {
            return text;
        }
        int head = MAX_TEXT / 2;
        int tail = text.length() - MAX_TEXT / 2;
        head -= Character.isHighSurrogate(text.charAt(head - 1)) ? 1 : 0;
        tail += Character.isLowSurrogate(text.charAt(tail)) ? 1 : 0;
        return "%s\n[… %d characters left out …]\n%s"
                .formatted(text.substring(0, head), tail - head, text.substring(tail));
    }
}
