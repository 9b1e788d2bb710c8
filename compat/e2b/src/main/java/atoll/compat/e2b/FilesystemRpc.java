package atoll.compat.e2b;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReply;
import atoll.core.file.FileStat;
import atoll.core.file.FileType;
import atoll.core.file.FileWatch;
import atoll.core.file.Files;
import atoll.core.file.WatchId;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/** {@code filesystem.Filesystem}: files and watches of a sandbox. */
final class FilesystemRpc {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final Duration KEEP_ALIVE = Duration.ofSeconds(50);
    private static final int DEEPEST = 1000;

    private final Files files;

    FilesystemRpc(Files files) {
        this.files = files;
    }

    void serve(SandboxRequest request, String method) throws IOException, InterruptedException {
        switch (method) {
            case "Stat" -> Connect.unary(request.exchange(), message -> entry(stat(request, path(message, "path"))));
            case "MakeDir" -> Connect.unary(request.exchange(), message -> makeFolder(request, message));
            case "Move" -> Connect.unary(request.exchange(), message -> move(request, message));
            case "Remove" -> Connect.unary(request.exchange(), message -> remove(request, message));
            case "ListDir" -> Connect.unary(request.exchange(), message -> list(request, message));
            case "WatchDir" -> Connect.streaming(request.exchange(), (in, out) -> watch(request, in.only(), out));
            case "CreateWatcher" -> Connect.unary(request.exchange(), message -> createWatcher(request, message));
            case "GetWatcherEvents" -> Connect.unary(request.exchange(), message -> watcherEvents(request, message));
            case "RemoveWatcher" ->
                Connect.unary(request.exchange(), message -> {
                    files.endWatch(
                            request.caller(),
                            request.sandbox(),
                            watcher(message).watch());
                    return NODES.objectNode();
                });
            default ->
                Connect.unary(request.exchange(), _ -> {
                    throw new Connect.Failure("unimplemented", "filesystem.Filesystem/" + method);
                });
        }
    }

    private static String path(JsonNode message, String name) {
        return SandboxRequest.path(Text.required(message, name));
    }

    private FileReply apply(SandboxRequest request, FileOperation operation) {
        return files.apply(request.caller(), request.sandbox(), request.user(), operation);
    }

    private FileStat stat(SandboxRequest request, String path) {
        return apply(request, new FileOperation.Stat(path, false, true)).file().orElseThrow();
    }

    private static ObjectNode entry(FileStat file) {
        ObjectNode reply = NODES.objectNode();
        reply.set("entry", FileViews.entry(file));
        return reply;
    }

    private ObjectNode makeFolder(SandboxRequest request, JsonNode message) {
        String path = path(message, "path");
        FileReply made = apply(request, new FileOperation.MakeFolder(path, true, OptionalInt.empty(), false));
        return entry(made.file().orElseGet(() -> stat(request, path)));
    }

    private ObjectNode move(SandboxRequest request, JsonNode message) {
        String to = path(message, "destination");
        FileReply moved = apply(request, new FileOperation.Move(path(message, "source"), to, true, false));
        return entry(moved.file().orElseGet(() -> stat(request, to)));
    }

    private ObjectNode remove(SandboxRequest request, JsonNode message) {
        FileReply removed = apply(request, new FileOperation.Remove(path(message, "path"), true, true));
        assert removed.problems().isEmpty();
        return NODES.objectNode();
    }

    private ObjectNode list(SandboxRequest request, JsonNode message) {
        String path = path(message, "path");
        int depth = Math.clamp(Text.number(message, "depth").orElse(1L), 1, DEEPEST);
        ArrayNode entries = NODES.arrayNode();
        Optional<String> after = Optional.of("");
        while (after.isPresent()) {
            FileReply page = apply(
                    request,
                    new FileOperation.ListFolder(path, depth, true, FileOperation.ListFolder.MOST, after.get()));
            page.entries().forEach(file -> entries.add(FileViews.entry(file)));
            after = page.next();
        }
        ObjectNode reply = NODES.objectNode();
        reply.set("entries", entries);
        return reply;
    }

    private void watch(SandboxRequest request, JsonNode message, Connect.Outgoing out)
            throws IOException, InterruptedException {
        boolean entries = Text.flag(message, "includeEntry");
        try (FileWatch watch = files.watch(
                request.caller(),
                request.sandbox(),
                request.user(),
                folder(request, message),
                Text.flag(message, "recursive"))) {
            while (true) {
                Optional<FileEvent> event = watch.next(KEEP_ALIVE);
                if (event.isEmpty()) {
                    ObjectNode silent = NODES.objectNode();
                    silent.set("keepalive", NODES.objectNode());
                    out.send(silent);
                } else if (event.get().kind() == FileEvent.Kind.READY) {
                    ObjectNode start = NODES.objectNode();
                    start.set("start", NODES.objectNode());
                    out.send(start);
                } else if (event.get().kind() != FileEvent.Kind.OVERFLOW) {
                    ObjectNode told = NODES.objectNode();
                    told.set("filesystem", event(request, event.get(), entries));
                    out.send(told);
                }
            }
        }
    }

    /** A missing folder is not found, and what is no folder can't be watched. */
    private String folder(SandboxRequest request, JsonNode message) {
        String path = path(message, "path");
        FileStat there =
                apply(request, new FileOperation.Stat(path, true, false)).file().orElseThrow();
        if (there.type() != FileType.DIRECTORY) {
            throw Text.invalid("path: " + path + " is no folder");
        }
        return path;
    }

    private ObjectNode event(SandboxRequest request, FileEvent event, boolean withEntry) {
        ObjectNode told = NODES.objectNode();
        told.put("name", event.name());
        told.put("type", "EVENT_TYPE_" + event.kind().name());
        if (withEntry) {
            try {
                told.set("entry", FileViews.entry(stat(request, event.path())));
            } catch (AtollException e) {
                // It is gone again.
                if (e.code() != ErrorCode.FILE_NOT_FOUND && e.code() != ErrorCode.PERMISSION_DENIED) {
                    throw e;
                }
            }
        }
        return told;
    }

    /** A watcher that is asked for its events; what else it was asked for is part of its name. */
    private record Watcher(WatchId watch, boolean entries) {
        private static final String WITH_ENTRIES = ".entries";

        String text() {
            return watch + (entries ? WITH_ENTRIES : "");
        }

        static Watcher parse(String text) {
            boolean entries = text.endsWith(WITH_ENTRIES);
            return new Watcher(
                    WatchId.parse(entries ? text.substring(0, text.length() - WITH_ENTRIES.length()) : text), entries);
        }
    }

    private static Watcher watcher(JsonNode message) {
        return Watcher.parse(Text.required(message, "watcherId"));
    }

    private ObjectNode createWatcher(SandboxRequest request, JsonNode message) throws InterruptedException {
        WatchId watch = files.startWatch(
                request.caller(),
                request.sandbox(),
                request.user(),
                folder(request, message),
                Text.flag(message, "recursive"));
        return NODES.objectNode().put("watcherId", new Watcher(watch, Text.flag(message, "includeEntry")).text());
    }

    private ObjectNode watcherEvents(SandboxRequest request, JsonNode message) throws InterruptedException {
        Watcher watcher = watcher(message);
        List<FileEvent> events = new ArrayList<>(files.drain(request.caller(), request.sandbox(), watcher.watch())
                .events());
        ArrayNode told = NODES.arrayNode();
        events.forEach(event -> {
            if (event.kind() != FileEvent.Kind.READY && event.kind() != FileEvent.Kind.OVERFLOW) {
                told.add(event(request, event, watcher.entries()));
            }
        });
        ObjectNode reply = NODES.objectNode();
        reply.set("events", told);
        return reply;
    }
}
