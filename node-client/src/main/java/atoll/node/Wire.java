package atoll.node;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.execution.ChangedFile;
import atoll.core.execution.ChangedFiles;
import atoll.core.execution.ExecutionError;
import atoll.core.execution.ExecutionOutcome.MemoryUse;
import atoll.core.execution.ExitReason;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.node.Box;
import atoll.core.node.BoxAssignment;
import atoll.core.node.BoxSpec;
import atoll.core.node.BoxState;
import atoll.core.node.BoxUsage;
import atoll.core.node.ContextSpec;
import atoll.core.node.ExecutionSpec;
import atoll.core.node.Image;
import atoll.core.node.NodeContext;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeExecution;
import atoll.core.node.NodeInfo;
import atoll.core.node.NodeSnapshot;
import atoll.core.sandbox.EndReason;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.template.Limits;
import atoll.proto.engine.v1.AssignBoxRequest;
import atoll.proto.engine.v1.BoxEndReason;
import atoll.proto.engine.v1.EngineInfo;
import atoll.proto.engine.v1.ExecutionRecord;
import atoll.proto.engine.v1.ImageOrigin;
import atoll.proto.engine.v1.OutputPiece;
import atoll.proto.engine.v1.Snapshot;
import atoll.proto.exec.v1.Context;
import atoll.proto.exec.v1.ExecutionEvent;
import atoll.proto.exec.v1.Finished;
import atoll.proto.exec.v1.Stream;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.TreeMap;
import tools.jackson.core.JacksonException;
import tools.jackson.core.JsonParser;
import tools.jackson.core.JsonToken;
import tools.jackson.core.ObjectReadContext;
import tools.jackson.core.json.JsonFactory;

/** Core's values as the protocol's messages, and back. */
final class Wire {
    private static final JsonFactory JSON = new JsonFactory();

    private Wire() {}

    static atoll.proto.exec.v1.Limits limits(Limits limits) {
        return atoll.proto.exec.v1.Limits.newBuilder()
                .setMemoryBytes(limits.memoryBytes())
                .setCpuMillis(limits.cpuMillis())
                .setDiskBytes(limits.diskBytes())
                .setMaxProcesses(limits.maxProcesses())
                .setMaxOpenFiles(limits.maxOpenFiles())
                .build();
    }

    static atoll.proto.exec.v1.ContextSpec context(ContextSpec spec) {
        return atoll.proto.exec.v1.ContextSpec.newBuilder()
                .setContextId(spec.id().toString())
                .setLanguage(spec.language().text())
                .setCwd(spec.cwd())
                .putAllEnv(spec.env())
                .build();
    }

    private static Optional<ContextSpec> context(atoll.proto.exec.v1.ContextSpec spec) {
        return Language.ofText(spec.getLanguage())
                .map(language -> new ContextSpec(
                        ContextId.parse(spec.getContextId()), language, spec.getCwd(), spec.getEnvMap()));
    }

    static Limits limits(atoll.proto.exec.v1.Limits limits) {
        return new Limits(
                limits.getMemoryBytes(),
                limits.getCpuMillis(),
                limits.getDiskBytes(),
                limits.getMaxProcesses(),
                limits.getMaxOpenFiles());
    }

    static NodeContext context(Context context) {
        NodeContext.State state = switch (context.getState()) {
            case CONTEXT_STATE_STARTING -> NodeContext.State.STARTING;
            case CONTEXT_STATE_IDLE, CONTEXT_STATE_UNSPECIFIED, UNRECOGNIZED -> NodeContext.State.IDLE;
            case CONTEXT_STATE_RUNNING -> NodeContext.State.RUNNING;
            case CONTEXT_STATE_FAILED -> NodeContext.State.FAILED;
        };
        return new NodeContext(
                ContextId.parse(context.getContextId()),
                context.getVersion(),
                context.getCwd(),
                state,
                context.getRestarts(),
                context.getDetail());
    }

    static BoxUsage usage(atoll.proto.engine.v1.BoxUsage usage) {
        return new BoxUsage(
                BoxId.parse(usage.getBoxId()),
                usage.getSandboxId().isEmpty() ? Optional.empty() : Optional.of(SandboxId.parse(usage.getSandboxId())),
                Instant.ofEpochMilli(usage.getAtUnixMs()),
                Duration.ofNanos(usage.getCpuUs() * 1000),
                Duration.ofNanos(usage.getThrottledUs() * 1000),
                usage.getMemoryBytes(),
                usage.getMemoryPeakBytes(),
                usage.getDiskBytes(),
                usage.getProcesses(),
                usage.hasLimits() ? Optional.of(limits(usage.getLimits())) : Optional.empty());
    }

    static atoll.proto.engine.v1.BoxSpec box(BoxSpec spec) {
        return atoll.proto.engine.v1.BoxSpec.newBuilder()
                .setImageDigest(spec.imageDigest())
                .setLimits(limits(spec.limits()))
                .addAllWarmContexts(
                        spec.warmContexts().stream().map(Wire::context).toList())
                .putAllLabels(spec.labels())
                .setRuntime(spec.runtime())
                .build();
    }

    static atoll.proto.exec.v1.ExecutionSpec execution(ExecutionSpec spec) {
        return atoll.proto.exec.v1.ExecutionSpec.newBuilder()
                .setExecutionId(spec.id().toString())
                .setContextId(spec.contextId().toString())
                .setCode(spec.code())
                .setTimeoutMs((int) Math.min(Integer.MAX_VALUE, spec.timeout().toMillis()))
                .putAllEnv(spec.env())
                .setListFiles(spec.listFiles())
                .build();
    }

    static NodeInfo info(EngineInfo info) {
        return new NodeInfo(
                info.getInstance(),
                info.getEngineVersion(),
                info.getRuntimeVersion(),
                info.getCgroupVersion(),
                info.getMemoryTotalBytes(),
                info.getMemoryAvailableBytes(),
                info.getDiskTotalBytes(),
                info.getDiskAvailableBytes(),
                info.getCpus(),
                info.getBoxes(),
                Instant.ofEpochMilli(info.getStartedAtUnixMs()),
                info.getClaimedEpoch(),
                info.getWarningsList(),
                info.getSnapshotKey(),
                info.getRuntimeVersionsList(),
                info.getRuntimesList().stream()
                        .map(runtime -> new NodeInfo.BoxRuntime(
                                runtime.getName(),
                                runtime.getVersion(),
                                runtime.getAvailable(),
                                runtime.getProblem(),
                                runtime.getLacksList()))
                        .toList(),
                info.getRecipesList());
    }

    static Image image(atoll.proto.engine.v1.Image image) {
        List<Language> languages = new ArrayList<>();
        image.getLanguagesList().forEach(name -> Language.ofText(name).ifPresent(languages::add));
        Metadata metadata = metadata(image.getMetadataJson());
        return new Image(
                image.getName(),
                image.getDigest(),
                image.getSizeBytes(),
                languages,
                Language.ofText(image.getDefaultLanguage())
                        .filter(languages::contains)
                        .or(() -> languages.stream().findFirst()),
                metadata.packages,
                origin(image.getOrigin()),
                image.getSource(),
                metadata.user,
                Instant.ofEpochMilli(image.getBuiltAtUnixMs()));
    }

    private static Image.Origin origin(ImageOrigin origin) {
        return switch (origin) {
            // Of an engine that knows nothing else.
            case IMAGE_ORIGIN_RECIPE, IMAGE_ORIGIN_UNSPECIFIED, UNRECOGNIZED -> Image.Origin.RECIPE;
            case IMAGE_ORIGIN_REGISTRY -> Image.Origin.REGISTRY;
            case IMAGE_ORIGIN_ARCHIVE -> Image.Origin.ARCHIVE;
            case IMAGE_ORIGIN_DOCKERFILE -> Image.Origin.DOCKERFILE;
            case IMAGE_ORIGIN_BOX -> Image.Origin.SANDBOX;
            case IMAGE_ORIGIN_DOCKER_DAEMON -> Image.Origin.DOCKER_DAEMON;
        };
    }

    /** What is read of an image's metadata. */
    private static final class Metadata {
        /** By kind, name to version; empty if there is none. */
        final Map<String, Map<String, String>> packages = new TreeMap<>();

        String user = "";
    }

    private static Metadata metadata(String json) {
        Metadata read = new Metadata();
        try (JsonParser parser = JSON.createParser(ObjectReadContext.empty(), json)) {
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                return read;
            }
            while (parser.nextToken() == JsonToken.PROPERTY_NAME) {
                String name = parser.currentName();
                JsonToken value = parser.nextToken();
                if (name.equals("user") && value == JsonToken.VALUE_STRING) {
                    read.user = parser.getString();
                } else if (name.equals("packages") && value == JsonToken.START_OBJECT) {
                    packages(parser, read.packages);
                } else {
                    parser.skipChildren();
                }
            }
        } catch (JacksonException e) {
            System.getLogger(Wire.class.getName())
                    .log(System.Logger.Level.WARNING, "an image's metadata is no JSON: " + e.getOriginalMessage());
        }
        return read;
    }

    private static void packages(JsonParser parser, Map<String, Map<String, String>> into) {
        while (parser.nextToken() == JsonToken.PROPERTY_NAME) {
            String kind = parser.currentName();
            if (parser.nextToken() == JsonToken.START_OBJECT) {
                into.put(kind, versions(parser));
            } else {
                parser.skipChildren();
            }
        }
    }

    private static Map<String, String> versions(JsonParser parser) {
        Map<String, String> versions = new TreeMap<>();
        while (parser.nextToken() == JsonToken.PROPERTY_NAME) {
            String name = parser.currentName();
            if (parser.nextToken() == JsonToken.VALUE_STRING) {
                versions.put(name, parser.getString());
            } else {
                parser.skipChildren();
            }
        }
        return versions;
    }

    static Box box(atoll.proto.engine.v1.Box box) {
        List<ContextSpec> contexts = new ArrayList<>();
        box.getSpec().getWarmContextsList().forEach(spec -> context(spec).ifPresent(contexts::add));
        Map<String, String> labels = new HashMap<>(box.getSpec().getLabelsMap());
        labels.putAll(box.getLabelsMap());
        BoxState state = switch (box.getState()) {
            case BOX_STATE_READY -> BoxState.READY;
            case BOX_STATE_RECONNECTING -> BoxState.RECONNECTING;
            case BOX_STATE_ENDED -> BoxState.ENDED;
            case BOX_STATE_DELETED -> BoxState.DELETED;
            case BOX_STATE_PREPARED -> BoxState.PREPARED;
            case BOX_STATE_PAUSING -> BoxState.PAUSING;
            case BOX_STATE_PAUSED -> BoxState.PAUSED;
            case BOX_STATE_RESUMING -> BoxState.RESUMING;
            case BOX_STATE_CREATING, BOX_STATE_UNSPECIFIED, UNRECOGNIZED -> BoxState.CREATING;
        };
        return new Box(
                BoxId.parse(box.getBoxId()),
                state,
                box.getSandboxId().isEmpty() ? Optional.empty() : Optional.of(SandboxId.parse(box.getSandboxId())),
                labels,
                contexts,
                box.hasLimits() ? Optional.of(limits(box.getLimits())) : Optional.empty(),
                state.isOver() ? Optional.of(end(box)) : Optional.empty(),
                snapshotId(box.getRestoredFrom()),
                snapshotId(box.getPauseSnapshotId()),
                box.getPauseSnapshotId().isEmpty() ? Optional.empty() : pauseKind(box),
                box.getPauseSnapshotBytes() > 0 ? OptionalLong.of(box.getPauseSnapshotBytes()) : OptionalLong.empty(),
                held(box.getContextsList()),
                moment(box.getDeadlineUnixMs()));
    }

    private static Optional<SnapshotKind> pauseKind(atoll.proto.engine.v1.Box box) {
        return switch (box.getPauseKind()) {
            case SNAPSHOT_KIND_MEMORY -> Optional.of(SnapshotKind.MEMORY);
            case SNAPSHOT_KIND_FILES -> Optional.of(SnapshotKind.FILES);
            case SNAPSHOT_KIND_UNSPECIFIED, UNRECOGNIZED -> Optional.empty();
        };
    }

    private static Optional<SnapshotId> snapshotId(String text) {
        return text.isEmpty() ? Optional.empty() : Optional.of(SnapshotId.parse(text));
    }

    private static Optional<Instant> moment(long unixMs) {
        return unixMs == 0 ? Optional.empty() : Optional.of(Instant.ofEpochMilli(unixMs));
    }

    /** 0 is none. */
    static long unixMs(Optional<Instant> moment) {
        return moment.map(at -> Math.max(1, at.toEpochMilli())).orElse(0L);
    }

    /** Those of languages that this server knows. */
    private static List<NodeSnapshot.Held> held(List<Context> contexts) {
        List<NodeSnapshot.Held> held = new ArrayList<>();
        contexts.forEach(context -> Language.ofText(context.getLanguage())
                .ifPresent(language ->
                        held.add(new NodeSnapshot.Held(ContextId.parse(context.getContextId()), language))));
        return held;
    }

    static AssignBoxRequest assignment(BoxId id, BoxAssignment assignment) {
        return AssignBoxRequest.newBuilder()
                .setBoxId(id.toString())
                .setSandboxId(assignment.sandboxId().toString())
                .setHostname(assignment.hostname())
                .putAllEnv(assignment.env())
                .setLimits(limits(assignment.limits()))
                .setDeadlineUnixMs(unixMs(assignment.deadline()))
                .build();
    }

    static atoll.proto.engine.v1.SnapshotKind kind(SnapshotKind kind) {
        return switch (kind) {
            case MEMORY -> atoll.proto.engine.v1.SnapshotKind.SNAPSHOT_KIND_MEMORY;
            case FILES -> atoll.proto.engine.v1.SnapshotKind.SNAPSHOT_KIND_FILES;
        };
    }

    static NodeSnapshot snapshot(Snapshot snapshot) {
        SnapshotKind kind = switch (snapshot.getKind()) {
            case SNAPSHOT_KIND_FILES -> SnapshotKind.FILES;
            case SNAPSHOT_KIND_MEMORY, SNAPSHOT_KIND_UNSPECIFIED, UNRECOGNIZED -> SnapshotKind.MEMORY;
        };
        return new NodeSnapshot(
                SnapshotId.parse(snapshot.getSnapshotId()),
                kind,
                snapshot.getLabelsMap(),
                snapshot.getBoxId().isEmpty() ? Optional.empty() : Optional.of(BoxId.parse(snapshot.getBoxId())),
                snapshot.getSandboxId().isEmpty()
                        ? Optional.empty()
                        : Optional.of(SandboxId.parse(snapshot.getSandboxId())),
                snapshot.getImageDigest(),
                snapshot.getRuntimeVersion(),
                snapshot.getSizeBytes(),
                Instant.ofEpochMilli(snapshot.getCreatedAtUnixMs()),
                snapshot.hasLimits() ? limits(snapshot.getLimits()) : Limits.DEFAULT,
                held(snapshot.getContextsList()),
                snapshot.getUnusable().isEmpty() ? Optional.empty() : Optional.of(snapshot.getUnusable()),
                Duration.ofMillis(snapshot.getStoppedMs()));
    }

    private static Box.End end(atoll.proto.engine.v1.Box box) {
        EndReason reason = switch (box.getEndReason()) {
            case BOX_END_REASON_DELETED -> EndReason.DELETED;
            case BOX_END_REASON_OUT_OF_MEMORY -> EndReason.OUT_OF_MEMORY;
            case BOX_END_REASON_START_FAILED -> EndReason.START_FAILED;
            case BOX_END_REASON_LOST -> EndReason.LOST;
            case BOX_END_REASON_DEADLINE -> EndReason.EXPIRED;
            case BOX_END_REASON_EXITED, BOX_END_REASON_UNSPECIFIED, UNRECOGNIZED -> EndReason.CRASHED;
        };
        String detail = box.getEndDetail();
        if (box.getEndReason() == BoxEndReason.BOX_END_REASON_OUT_OF_MEMORY && box.getMemoryLimitBytes() > 0) {
            detail = "It needed more memory than its limit of " + mib(box.getMemoryLimitBytes()) + " (peak "
                    + mib(box.getMemoryPeakBytes()) + "). " + detail;
        }
        return new Box.End(reason, detail.strip(), Instant.ofEpochMilli(box.getEndedAtUnixMs()));
    }

    private static String mib(long bytes) {
        return String.format(Locale.ROOT, "%.1f MiB", bytes / 1048576.0);
    }

    static NodeEvent event(ExecutionEvent event) {
        long seq = event.getSeq();
        return switch (event.getEventCase()) {
            case STARTED ->
                new NodeEvent.Started(
                        seq, Instant.ofEpochMilli(event.getStarted().getAtUnixMs()));
            case OUTPUT ->
                new NodeEvent.Output(
                        seq,
                        stream(event.getOutput().getStream()),
                        event.getOutput().getOffset(),
                        event.getOutput().getData().asReadOnlyByteBuffer());
            case RESULT -> new NodeEvent.Result(seq, Bundles.result(event.getResult()));
            case GAP ->
                new NodeEvent.Gap(
                        seq,
                        stream(event.getGap().getStream()),
                        event.getGap().getOffset(),
                        event.getGap().getBytes());
            case FINISHED -> new NodeEvent.Finished(seq, finish(event.getFinished()));
            // Something that a newer engine says: it has its place in the order, and nothing else to tell this server.
            case EVENT_NOT_SET -> new NodeEvent.Started(seq, Instant.EPOCH);
        };
    }

    private static StandardStream stream(Stream stream) {
        return stream == Stream.STREAM_STDERR ? StandardStream.STDERR : StandardStream.STDOUT;
    }

    static Stream stream(StandardStream stream) {
        return switch (stream) {
            case STDOUT -> Stream.STREAM_STDOUT;
            case STDERR -> Stream.STREAM_STDERR;
        };
    }

    static NodeEvent.Finish finish(Finished f) {
        ExitReason reason = switch (f.getReason()) {
            case EXIT_REASON_COMPLETED -> ExitReason.COMPLETED;
            case EXIT_REASON_ERROR -> ExitReason.ERROR;
            case EXIT_REASON_EXITED -> ExitReason.EXITED;
            case EXIT_REASON_TIMEOUT -> ExitReason.TIMEOUT;
            case EXIT_REASON_INTERRUPTED -> ExitReason.INTERRUPTED;
            case EXIT_REASON_OUT_OF_MEMORY -> ExitReason.OUT_OF_MEMORY;
            case EXIT_REASON_KERNEL_DIED -> ExitReason.KERNEL_DIED;
            case EXIT_REASON_SANDBOX_ENDED -> ExitReason.SANDBOX_ENDED;
            case EXIT_REASON_LOST, EXIT_REASON_UNSPECIFIED, UNRECOGNIZED -> ExitReason.LOST;
        };
        boolean exits = reason == ExitReason.COMPLETED
                || reason == ExitReason.EXITED
                || (reason == ExitReason.KERNEL_DIED && f.getSignal() == 0)
                // Ended by itself when memory was refused to it, or to a child.
                || (reason == ExitReason.OUT_OF_MEMORY && f.getExitCode() != 0);
        Instant startedAt = Instant.ofEpochMilli(f.getStartedAtUnixMs());
        Duration duration = Duration.ofNanos(f.getDurationUs() * 1000);
        return new NodeEvent.Finish(
                reason,
                f.hasError()
                        ? Optional.of(new ExecutionError(
                                f.getError().getName(),
                                f.getError().getMessage(),
                                f.getError().getTraceback()))
                        : Optional.empty(),
                exits ? OptionalInt.of(f.getExitCode()) : OptionalInt.empty(),
                f.getSignal() != 0 ? OptionalInt.of(f.getSignal()) : OptionalInt.empty(),
                f.getStateKept(),
                f.getDetail(),
                startedAt,
                duration,
                f.getEndedAtUnixMs() == 0 ? startedAt.plus(duration) : Instant.ofEpochMilli(f.getEndedAtUnixMs()),
                f.getStdoutBytes(),
                f.getStderrBytes(),
                reason == ExitReason.OUT_OF_MEMORY
                        ? Optional.of(new MemoryUse(f.getMemoryLimitBytes(), f.getMemoryPeakBytes()))
                        : Optional.empty(),
                f.hasFiles() ? Optional.of(files(f.getFiles())) : Optional.empty());
    }

    private static ChangedFiles files(atoll.proto.exec.v1.ChangedFiles files) {
        return new ChangedFiles(
                files.getFilesList().stream()
                        .limit(ChangedFiles.MAX_FILES + 1)
                        .map(file -> new ChangedFile(
                                file.getPath(),
                                Math.max(0, file.getSizeBytes()),
                                Instant.ofEpochMilli(file.getModifiedAtUnixMs())))
                        .toList(),
                files.getIncomplete());
    }

    static NodeExecution execution(ExecutionRecord record) {
        return new NodeExecution(
                ExecutionId.parse(record.getExecutionId()),
                BoxId.parse(record.getBoxId()),
                ContextId.parse(record.getContextId()),
                record.getSandboxId().isEmpty()
                        ? Optional.empty()
                        : Optional.of(SandboxId.parse(record.getSandboxId())),
                record.getRunning());
    }

    static OutputReader.Piece piece(OutputPiece piece) {
        return new OutputReader.Piece(piece.getOffset(), piece.getData().asReadOnlyByteBuffer(), piece.getGapBytes());
    }
}
