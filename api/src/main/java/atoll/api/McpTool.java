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
import tools.jackson.databind.JsonNode;

/** The tool {@code code_exec} as MCP describes and answers it. */
final class McpTool {
    static final String NAME = "code_exec";
    /** What a model reads is kept to this many characters per text; the rest stays readable at the output endpoint. */
    private static final int MAX_TEXT = 64 << 10;

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
        Wire.Outcome shown = cut
                ? whole.withTexts(shortened(whole.output()), shortened(whole.stdout()), shortened(whole.stderr()))
                : whole;
        var content = new ArrayList<Map<String, Object>>();
        content.add(text(forModel(outcome, shown)));
        outcome.results().forEach(result -> addImages(result, content));
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
            lines.add("[" + outcome.exitReason().text() + "] " + outcome.detail());
        }
        if (outcome.exitReason() == ExitReason.COMPLETED && outcome.exitCode().orElse(0) != 0) {
            lines.add("[exit code " + outcome.exitCode().getAsInt() + "]");
        }
        if (!outcome.stateKept()) {
            lines.add("[the interpreter was started afresh: variables and imports are gone, files are not]");
        }
        lines.add("[sandbox_id: " + shown.sandboxId() + "]");
        return String.join("\n", lines);
    }

    private static void addImages(ExecutionResult result, List<Map<String, Object>> content) {
        if (!result.data().json().contains("\"image/")) {
            return;
        }
        for (Map.Entry<String, JsonNode> form :
                Json.mapper().readTree(result.data().json()).properties()) {
            boolean binary =
                    form.getKey().startsWith("image/") && !form.getKey().equals("image/svg+xml");
            if (binary && form.getValue().isString()) {
                var image = new LinkedHashMap<String, Object>();
                image.put("type", "image");
                image.put("data", form.getValue().stringValue().replace("\n", ""));
                image.put("mimeType", form.getKey());
                content.add(image);
            }
        }
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
