package atoll.api;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.execution.CodeExecRequest;
import atoll.http.Json;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/** The arguments of {@code code_exec}, as they come by HTTP and by MCP. */
final class CodeExecArguments {
    /** {@code tool} is what an agent's tool call carries along; it must be ours if it is there. */
    private static final Set<String> BY_HTTP = Set.of(
            "tool",
            "code",
            "template",
            "language",
            "sandbox_id",
            "context_id",
            "timeout_seconds",
            "env",
            "limits",
            "labels",
            "list_files",
            "stream");

    private static final Set<String> BY_TOOL =
            Set.of("code", "template", "language", "sandbox_id", "context_id", "timeout_seconds", "env", "list_files");

    private static final Set<String> NO_TEXTS = Set.of("timeout_seconds", "env", "list_files");

    private static final Set<String> IN_CONTEXT =
            Set.of("tool", "code", "timeout_seconds", "env", "list_files", "stream", "background");

    private final Fields fields;

    private CodeExecArguments(Fields fields) {
        this.fields = fields;
    }

    static CodeExecArguments byHttp(JsonNode body) {
        return new CodeExecArguments(new Fields(body, BY_HTTP));
    }

    static CodeExecArguments byTool(JsonNode arguments) {
        return new CodeExecArguments(new Fields(asMeant(arguments), BY_TOOL));
    }

    /**
     * Models fill in what they may leave out with empty texts, and clients (Claude Code 2.1 among them) send numbers, booleans and objects as texts. What can only
     * be meant one way is taken so; all else stays as it is, and is refused with what was expected.
     */
    private static JsonNode asMeant(JsonNode arguments) {
        if (!arguments.isObject()) {
            return arguments;
        }
        ObjectNode meant = Json.mapper().createObjectNode();
        for (Map.Entry<String, JsonNode> argument : arguments.properties()) {
            JsonNode value = argument.getValue();
            String text = value.isString() ? value.stringValue() : "";
            boolean leftOut =
                    value.isString() && text.isBlank() && !argument.getKey().equals("code");
            if (!leftOut) {
                meant.set(argument.getKey(), NO_TEXTS.contains(argument.getKey()) ? typed(text, value) : value);
            }
        }
        return meant;
    }

    /** The value that a text spells in JSON. */
    private static JsonNode typed(String text, JsonNode otherwise) {
        if (text.isEmpty()) {
            return otherwise;
        }
        try {
            return Json.mapper().readTree(text);
        } catch (JacksonException _) {
            return otherwise;
        }
    }

    /** Of a call whose path names sandbox and context. */
    static CodeExecArguments inContext(JsonNode body) {
        return new CodeExecArguments(new Fields(body, IN_CONTEXT));
    }

    boolean background() {
        return fields.flag("background");
    }

    boolean stream() {
        return fields.flag("stream");
    }

    CodeExecRequest request(Optional<String> idempotencyKey) {
        fields.text("tool").ifPresent(tool -> {
            if (!tool.equals("code_exec")) {
                throw AtollException.invalid(
                        "tool: \"%s\" (expected: \"code_exec\")".formatted(tool), "Leave it out, or name code_exec.");
            }
        });
        String code = fields.requiredText("code");
        if (code.length() > CodeExecRequest.MAX_CODE_BYTES / 4 && utf8Length(code) > CodeExecRequest.MAX_CODE_BYTES) {
            throw new AtollException(
                    ErrorCode.REQUEST_TOO_LARGE,
                    "code: %d bytes (expected: at most %d)".formatted(utf8Length(code), CodeExecRequest.MAX_CODE_BYTES),
                    "",
                    "Put large data into a file of the sandbox and read it from there.");
        }
        return new CodeExecRequest(
                code,
                fields.text("template"),
                fields.text("language"),
                fields.text("sandbox_id").map(text -> Ids.sandbox("sandbox_id", text)),
                fields.text("context_id").map(text -> Ids.context("context_id", text)),
                fields.seconds("timeout_seconds"),
                fields.texts("env"),
                fields.limits("limits"),
                fields.texts("labels"),
                idempotencyKey,
                fields.flag("list_files"));
    }

    private static long utf8Length(String text) {
        return text.getBytes(StandardCharsets.UTF_8).length;
    }
}
