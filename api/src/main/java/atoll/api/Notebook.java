package atoll.api;

import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.SandboxId;
import atoll.core.execution.ExecutionError;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExecutionResult;
import atoll.http.ByteStream;
import atoll.http.Json;
import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.annotation.JsonRawValue;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Pattern;
import tools.jackson.databind.JsonNode;

/**
 * Executions as a Jupyter notebook (nbformat 4.5), written cell by cell: one of a few hundred executions may be as large as all that they have displayed. A notebook is of one
 * language, so cells of another say theirs: by the magic that Python's kernels know, else in their metadata.
 */
final class Notebook {
    private static final Pattern JSON = Pattern.compile("application/(.*\\+)?json");

    private final ByteStream out;
    private final Language language;
    private int cells;

    private Notebook(ByteStream out, Language language) {
        this.out = out;
        this.language = language;
    }

    /** What goes into {@code metadata.atoll} of the notebook. */
    record Origin(
            String sandboxId,
            @JsonInclude(JsonInclude.Include.NON_ABSENT) Optional<String> contextId,
            boolean complete) {
        static Origin of(SandboxId sandbox, Optional<ContextId> context, boolean complete) {
            return new Origin(sandbox.toString(), context.map(ContextId::toString), complete);
        }
    }

    private record Kernel(String name, String displayName, String language) {
        static Kernel of(Language language) {
            return switch (language) {
                case PYTHON -> new Kernel("python3", "Python 3", "python");
                case TYPESCRIPT -> new Kernel("deno", "Deno", "typescript");
                case BASH -> new Kernel("bash", "Bash", "bash");
                case GO -> new Kernel("gonb", "Go", "go");
            };
        }
    }

    private record Metadata(Kernel kernelspec, Map<String, String> languageInfo, Origin atoll) {}

    /** What goes into {@code metadata.atoll} of a cell. */
    private record Ran(
            String executionId,
            String contextId,
            String language,
            String exitReason,
            @JsonInclude(JsonInclude.Include.NON_DEFAULT) boolean truncated) {}

    private sealed interface Cell {}

    private record CodeCell(
            String cellType,
            String id,
            Optional<Integer> executionCount,
            Map<String, Object> metadata,
            String source,
            List<Output> outputs)
            implements Cell {}

    private record TextCell(String cellType, String id, Map<String, Object> metadata, String source) implements Cell {}

    private sealed interface Output {}

    private record Stream(String outputType, String name, String text) implements Output {}

    private record Value(
            String outputType,
            int executionCount,
            Map<String, Object> data,
            @JsonRawValue String metadata) implements Output {}

    private record Display(
            String outputType,
            Map<String, Object> data,
            @JsonRawValue String metadata) implements Output {}

    private record Failed(String outputType, String ename, String evalue, List<String> traceback) implements Output {}

    /** Reads what has to be written next, so that one is in memory at a time. */
    interface Source {
        Optional<ExecutionRecord> read(ExecutionId id);
    }

    /** The executions in their order, those that are gone by now left out. Ends the answer. */
    static void write(ByteStream out, Origin origin, Language language, List<ExecutionId> ids, Source source)
            throws IOException, InterruptedException {
        var notebook = new Notebook(out, language);
        notebook.text("{\n\"nbformat\": 4,\n\"nbformat_minor\": 5,\n\"metadata\": ");
        notebook.json(new Metadata(
                Kernel.of(language), Map.of("name", Kernel.of(language).language()), origin));
        notebook.text(",\n\"cells\": [");
        if (!origin.complete()) {
            notebook.add(new TextCell(
                    "markdown",
                    "atoll-left-out",
                    Map.of(),
                    "*Only the newest " + ids.size() + " executions are here.*"));
        }
        int count = 0;
        for (ExecutionId id : ids) {
            Optional<ExecutionRecord> execution = source.read(id);
            if (execution.isPresent()) {
                count++;
                notebook.add(notebook.cell(execution.get(), count));
            }
        }
        notebook.text("\n]\n}\n");
        out.finish();
    }

    private void add(Cell cell) throws IOException, InterruptedException {
        text(cells == 0 ? "\n" : ",\n");
        json(cell);
        cells++;
    }

    private CodeCell cell(ExecutionRecord execution, int count) {
        Optional<ExecutionOutcome> outcome = execution.outcome();
        var ran = new Ran(
                execution.id().toString(),
                execution.contextId().toString(),
                execution.language().text(),
                outcome.map(o -> o.exitReason().text()).orElse("running"),
                outcome.map(ExecutionOutcome::truncated).orElse(false));
        return new CodeCell(
                "code",
                execution.id().toString(),
                outcome.map(_ -> count),
                Map.of("atoll", ran),
                magic(execution.language()) + execution.code(),
                outcome.map(o -> outputs(o, count)).orElse(List.of()));
    }

    private String magic(Language cell) {
        return language == Language.PYTHON && cell == Language.BASH ? "%%bash\n" : "";
    }

    private static List<Output> outputs(ExecutionOutcome outcome, int count) {
        var outputs = new ArrayList<Output>();
        addStream(outputs, "stdout", outcome.stdout().text());
        addStream(outputs, "stderr", outcome.stderr().text());
        for (ExecutionResult result : outcome.results()) {
            if (!result.data().isEmpty()) {
                Map<String, Object> data = data(result);
                outputs.add(
                        result.main()
                                ? new Value("execute_result", count, data, result.metadata())
                                : new Display("display_data", data, result.metadata()));
            }
        }
        outcome.error().map(Notebook::failed).ifPresent(outputs::add);
        return outputs;
    }

    /** In a notebook only forms that say by their name that they are JSON may be something else than text. */
    private static Map<String, Object> data(ExecutionResult result) {
        var forms = new LinkedHashMap<String, Object>();
        for (Map.Entry<String, JsonNode> form :
                Json.mapper().readTree(result.data().json()).properties()) {
            JsonNode value = form.getValue();
            boolean fits = value.isString() || JSON.matcher(form.getKey()).matches();
            forms.put(form.getKey(), fits ? value : Json.text(value));
        }
        return forms;
    }

    private static void addStream(List<Output> outputs, String name, String text) {
        if (!text.isEmpty()) {
            outputs.add(new Stream("stream", name, text));
        }
    }

    private static Failed failed(ExecutionError error) {
        return new Failed(
                "error",
                error.name(),
                error.message(),
                error.traceback().lines().toList());
    }

    private void json(Object value) throws IOException, InterruptedException {
        out.write(ByteBuffer.wrap(Json.bytes(value)));
    }

    private void text(String text) throws IOException, InterruptedException {
        out.write(ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)));
    }
}
