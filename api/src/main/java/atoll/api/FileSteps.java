package atoll.api;

import atoll.core.AtollException;
import atoll.core.file.BatchStep;
import atoll.core.file.FileOperation;
import atoll.core.file.WriteFile;
import atoll.http.ErrorReply;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeSet;
import tools.jackson.databind.JsonNode;

/** File operations in JSON: each by itself in a call of its own, or several as a batch. */
final class FileSteps {
    static final Set<String> MAKE_FOLDER = Set.of("op", "path", "parents", "mode", "exist_ok", "user");
    static final Set<String> MOVE = Set.of("op", "from", "to", "overwrite", "parents", "user");
    static final Set<String> COPY = Set.of("op", "from", "to", "overwrite", "recursive", "parents", "user");
    static final Set<String> CHANGE =
            Set.of("op", "path", "mode", "owner", "group", "recursive", "modified_at", "user");
    static final Set<String> SYMLINK = Set.of("op", "path", "target", "user");
    static final Set<String> REPLACE = Set.of("paths", "pattern", "replacement", "regex", "user");
    private static final Set<String> WRITE = Set.of("op", "path", "content", "encoding", "mode", "parents");
    private static final Set<String> READ = Set.of("op", "path", "encoding", "max_bytes");
    private static final Set<String> STAT = Set.of("op", "path", "follow");
    private static final Set<String> REMOVE = Set.of("op", "path", "recursive", "force");
    private static final Set<String> LIST = Set.of("op", "path", "depth", "hidden", "limit", "next");
    private static final Set<String> OPERATIONS =
            Set.of("write", "read", "stat", "mkdir", "move", "copy", "remove", "chmod", "list", "symlink");
    private static final int DEFAULT_READ = 1 << 20;

    private FileSteps() {}

    /** A step, and how content is to be written in the answer: {@code utf8}, {@code base64}, or empty for what fits. */
    record Step(BatchStep step, String encoding) {}

    /** What came of a step. */
    record StepView(
            boolean ok,
            Optional<FilesApi.FileView> file,
            Optional<Boolean> changed,
            Optional<String> content,
            Optional<String> encoding,
            Optional<List<FilesApi.FileView>> entries,
            Optional<String> next,
            Optional<StepError> error) {
        static StepView of(boolean ok) {
            return new StepView(
                    ok,
                    Optional.empty(),
                    Optional.empty(),
                    Optional.empty(),
                    Optional.empty(),
                    Optional.empty(),
                    Optional.empty(),
                    Optional.empty());
        }
    }

    record StepError(String code, String message, String cause, String remediation) {
        static StepError of(AtollException failure) {
            ErrorReply reply = ErrorTable.reply(failure);
            return new StepError(reply.code(), reply.message(), reply.cause(), reply.remediation());
        }
    }

    static FileOperation makeFolder(Fields fields) {
        return new FileOperation.MakeFolder(
                fields.requiredText("path"), fields.flag("parents"), mode(fields), fields.flag("exist_ok"));
    }

    static FileOperation move(Fields fields) {
        return new FileOperation.Move(
                fields.requiredText("from"),
                fields.requiredText("to"),
                fields.flag("overwrite"),
                fields.flag("parents"));
    }

    static FileOperation copy(Fields fields) {
        return new FileOperation.Copy(
                fields.requiredText("from"),
                fields.requiredText("to"),
                fields.flag("overwrite"),
                fields.flag("recursive"),
                fields.flag("parents"));
    }

    static FileOperation change(Fields fields) {
        return new FileOperation.Change(
                fields.requiredText("path"),
                mode(fields),
                fields.text("owner"),
                fields.text("group"),
                fields.flag("recursive"),
                fields.text("modified_at").map(FileSteps::instant));
    }

    static FileOperation symlink(Fields fields) {
        return new FileOperation.MakeSymlink(fields.requiredText("path"), fields.requiredText("target"));
    }

    private static OptionalInt mode(Fields fields) {
        return FilesApi.mode("mode", fields.text("mode").orElse(null));
    }

    private static Instant instant(String text) {
        try {
            Instant at = Instant.parse(text);
            // What a file system can keep.
            if (at.isAfter(Instant.EPOCH.minusSeconds(9_000_000_000L))
                    && at.isBefore(Instant.EPOCH.plusSeconds(9_000_000_000L))) {
                return at;
            }
        } catch (DateTimeException _) {
            // Said below.
        }
        throw AtollException.invalid(
                "modified_at: \"%s\" (expected: a time, for example 2026-01-02T03:04:05Z)".formatted(text),
                "Correct the value.");
    }

    static List<Step> read(Fields batch) {
        var steps = new ArrayList<Step>();
        for (JsonNode node : batch.nodes("operations")) {
            try {
                steps.add(step(node));
            } catch (AtollException e) {
                throw new AtollException(
                        e.code(),
                        "operations[%d]: %s".formatted(steps.size(), e.message()),
                        e.reason(),
                        e.remediation());
            }
        }
        return steps;
    }

    private static Step step(JsonNode node) {
        JsonNode named = node.isObject() ? node.get("op") : null;
        String op = named != null && named.isString() ? named.stringValue() : "";
        return switch (op) {
            case "write" -> write(new Fields(node, WRITE));
            case "read" -> {
                Fields fields = new Fields(node, READ);
                yield new Step(
                        new BatchStep.Read(
                                fields.requiredText("path"),
                                fields.wholeNumber("max_bytes", DEFAULT_READ, 1, BatchStep.Read.MOST)),
                        encoding(fields));
            }
            case "stat" -> {
                Fields fields = new Fields(node, STAT);
                yield of(new FileOperation.Stat(fields.requiredText("path"), fields.flag("follow"), false));
            }
            case "mkdir" -> of(makeFolder(new Fields(node, MAKE_FOLDER)));
            case "move" -> of(move(new Fields(node, MOVE)));
            case "copy" -> of(copy(new Fields(node, COPY)));
            case "chmod" -> of(change(new Fields(node, CHANGE)));
            case "symlink" -> of(symlink(new Fields(node, SYMLINK)));
            case "remove" -> {
                Fields fields = new Fields(node, REMOVE);
                yield of(new FileOperation.Remove(
                        fields.requiredText("path"), fields.flag("recursive"), fields.flag("force")));
            }
            case "list" -> {
                Fields fields = new Fields(node, LIST);
                yield of(new FileOperation.ListFolder(
                        fields.requiredText("path"),
                        fields.wholeNumber("depth", 1, 1, 1000),
                        fields.flag("hidden", true),
                        fields.wholeNumber("limit", 1000, 1, FileOperation.ListFolder.MOST),
                        fields.text("next").orElse("")));
            }
            default ->
                throw AtollException.invalid(
                        "op: \"%s\" (expected: one of %s)"
                                .formatted(
                                        op.length() > 64 ? op.substring(0, 64) : op,
                                        String.join(", ", new TreeSet<>(OPERATIONS))),
                        "Correct the operation.");
        };
    }

    private static Step of(FileOperation operation) {
        return new Step(new BatchStep.Do(operation), "");
    }

    private static Step write(Fields fields) {
        String content = fields.requiredText("content");
        byte[] bytes;
        if (encoding(fields).equals("base64")) {
            try {
                bytes = Base64.getDecoder().decode(content);
            } catch (IllegalArgumentException e) {
                throw AtollException.invalid("content is no valid base64: " + e.getMessage(), "Correct the content.");
            }
        } else {
            bytes = content.getBytes(StandardCharsets.UTF_8);
        }
        var file = new WriteFile(
                fields.requiredText("path"),
                WriteFile.Mode.REPLACE,
                0,
                mode(fields),
                fields.flag("parents", true),
                Optional.empty(),
                Map.of(),
                OptionalLong.of(bytes.length));
        return new Step(new BatchStep.Write(file, ByteBuffer.wrap(bytes)), "");
    }

    private static String encoding(Fields fields) {
        String encoding = fields.text("encoding").orElse("");
        if (!encoding.isEmpty() && !encoding.equals("utf8") && !encoding.equals("base64")) {
            throw AtollException.invalid(
                    "encoding: \"%s\" (expected: utf8 or base64)".formatted(encoding), "Correct the value.");
        }
        return encoding;
    }

    static StepView view(Step step, BatchStep.Result result) {
        StepView ok = StepView.of(true);
        return switch (result) {
            case BatchStep.Result.Done(var reply) ->
                new StepView(
                        true,
                        reply.file().map(FilesApi.FileView::of),
                        Optional.of(reply.changed()),
                        ok.content,
                        ok.encoding,
                        step.step instanceof BatchStep.Do(FileOperation.ListFolder _)
                                ? Optional.of(reply.entries().stream()
                                        .map(FilesApi.FileView::of)
                                        .toList())
                                : Optional.empty(),
                        reply.next(),
                        ok.error);
            case BatchStep.Result.Written(var written) ->
                new StepView(
                        true,
                        Optional.of(FilesApi.FileView.of(written.file())),
                        Optional.of(true),
                        ok.content,
                        ok.encoding,
                        ok.entries,
                        ok.next,
                        ok.error);
            case BatchStep.Result.Content content -> content(step.encoding, content);
            case BatchStep.Result.Failed(AtollException failure) -> failed(StepError.of(failure));
            case BatchStep.Result.Skipped _ ->
                failed(new StepError("skipped", "it was not done, since an earlier operation failed", "", ""));
        };
    }

    private static StepView failed(StepError error) {
        StepView none = StepView.of(false);
        return new StepView(
                false,
                none.file,
                none.changed,
                none.content,
                none.encoding,
                none.entries,
                none.next,
                Optional.of(error));
    }

    /** Text as text where it is, else base64; what was asked for if that is possible. */
    private static StepView content(String wanted, BatchStep.Result.Content content) {
        String encoding = "base64";
        String text = "";
        if (!wanted.equals("base64")) {
            try {
                text = StandardCharsets.UTF_8
                        .newDecoder()
                        .decode(content.bytes().duplicate())
                        .toString();
                encoding = "utf8";
            } catch (CharacterCodingException _) {
                if (wanted.equals("utf8")) {
                    return failed(new StepError(
                            "file_conflict",
                            content.file().path() + ": is not valid UTF-8",
                            "",
                            "Read it with encoding base64."));
                }
            }
        }
        if (encoding.equals("base64")) {
            byte[] bytes = new byte[content.bytes().remaining()];
            content.bytes().duplicate().get(bytes);
            text = Base64.getEncoder().encodeToString(bytes);
        }
        StepView none = StepView.of(true);
        return new StepView(
                true,
                Optional.of(FilesApi.FileView.of(content.file())),
                none.changed,
                Optional.of(text),
                Optional.of(encoding),
                none.entries,
                none.next,
                none.error);
    }
}
