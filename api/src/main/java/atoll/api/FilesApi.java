package atoll.api;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.core.file.ArchiveFormat;
import atoll.core.file.BatchStep;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReader;
import atoll.core.file.FileReply;
import atoll.core.file.FileStat;
import atoll.core.file.FileType;
import atoll.core.file.FileWatch;
import atoll.core.file.FileWriter;
import atoll.core.file.Files;
import atoll.core.file.ReadFile;
import atoll.core.file.WatchId;
import atoll.core.file.WatchPage;
import atoll.core.file.WriteFile;
import atoll.core.file.WrittenFile;
import atoll.http.BodyStream;
import atoll.http.ByteRange;
import atoll.http.ByteStream;
import atoll.http.EventStream;
import atoll.http.Exchange;
import atoll.http.Json;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/** {@code /v1/sandboxes/{id}/files}: what goes in and out of a sandbox. Data goes through piece by piece, however large it is. */
final class FilesApi {
    private static final String BYTES = "application/octet-stream";
    private static final Duration KEEP_ALIVE = Duration.ofSeconds(15);
    private static final long LONGEST_WAIT_SECONDS = 600;
    private static final DateTimeFormatter HTTP_DATE =
            DateTimeFormatter.ofPattern("EEE, dd MMM yyyy HH:mm:ss 'GMT'", Locale.ENGLISH);

    private final Files files;

    FilesApi(Files files) {
        this.files = files;
    }

    record FileView(
            String path,
            String name,
            String type,
            long size,
            String mode,
            long uid,
            long gid,
            String owner,
            String group,
            Instant modifiedAt,
            Instant changedAt,
            Instant accessedAt,
            Optional<String> linkTarget,
            Optional<String> targetType,
            long inode,
            long links,
            Map<String, String> attributes) {
        static FileView of(FileStat file) {
            return new FileView(
                    file.path(),
                    file.name(),
                    file.type().text(),
                    file.size(),
                    "%04o".formatted(file.mode()),
                    file.uid(),
                    file.gid(),
                    file.owner(),
                    file.group(),
                    file.modifiedAt(),
                    file.changedAt(),
                    file.accessedAt(),
                    file.linkTarget(),
                    file.targetType().map(FileType::text),
                    file.inode(),
                    file.links(),
                    file.attributes());
        }
    }

    record Written(FileView file, long bytes, boolean created) {
        static Written of(WrittenFile written) {
            return new Written(FileView.of(written.file()), written.bytes(), written.created());
        }
    }

    record Unpacked(FileView file, long files, long bytes) {}

    record Changed(Optional<FileView> file, boolean changed) {
        static Changed of(FileReply reply) {
            return new Changed(reply.file().map(FileView::of), reply.changed());
        }
    }

    record Found(List<?> items, List<String> problems) {}

    record Matched(String path, long line, String text, int from, int length) {}

    record Replaced(String path, int count, Optional<String> error) {}

    record Event(String type, String path, String name, Optional<String> fileType, Instant at) {
        static Event of(FileEvent event) {
            return new Event(
                    event.kind().text(),
                    event.path(),
                    event.name(),
                    event.fileType().map(FileType::text),
                    event.at());
        }
    }

    record WatchView(String watchId) {}

    record Events(List<Event> items, String next, boolean overflow) {
        static Events of(WatchPage page) {
            return new Events(
                    page.events().stream().map(Event::of).toList(), Long.toString(page.next()), page.overflow());
        }
    }

    // Whole files.

    void read(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        String path = path(exchange);
        if (exchange.method().equals("HEAD")) {
            head(exchange, caller, path);
            return;
        }
        long offset = exchange.query("offset", 0, 0, Long.MAX_VALUE);
        long length = exchange.query("length", 0, 0, Long.MAX_VALUE);
        if (exchange.header("Range") != null && offset == 0 && length == 0) {
            readRange(exchange, caller, path);
            return;
        }
        try (FileReader reader =
                files.read(caller, id(exchange), user(exchange), new ReadFile(path, offset, length, none()))) {
            long left = Math.max(0, reader.file().size() - offset);
            describe(exchange, reader.file());
            exchange.responseHeader("Accept-Ranges", "bytes");
            send(exchange, 200, reader, length == 0 ? left : Math.min(left, length));
        }
    }

    private static Optional<ArchiveFormat> none() {
        return Optional.empty();
    }

    private void head(Exchange exchange, Caller caller, String path) throws IOException, InterruptedException {
        FileStat file = file(exchange, caller, path);
        describe(exchange, file);
        exchange.responseHeader("Accept-Ranges", "bytes");
        exchange.responseHeader("Content-Type", BYTES);
        if (file.type() == FileType.FILE) {
            exchange.responseHeader("Content-Length", Long.toString(file.size()));
        }
        exchange.empty(200);
    }

    private FileStat file(Exchange exchange, Caller caller, String path) {
        return files.apply(caller, id(exchange), user(exchange), new FileOperation.Stat(path, true, false))
                .file()
                .orElseThrow(() -> AtollException.internal("a file was looked at and nothing was said of it", null));
    }

    /** The size must be known before the part can be asked for; should it change in between, the call fails as such a read does. */
    private void readRange(Exchange exchange, Caller caller, String path) throws IOException, InterruptedException {
        FileStat file = file(exchange, caller, path);
        describe(exchange, file);
        Optional<ByteRange> range =
                exchange.range(file.size(), HTTP_DATE.format(file.modifiedAt().atOffset(ZoneOffset.UTC)));
        long first = range.map(ByteRange::first).orElse(0L);
        long length = range.map(ByteRange::length).orElse(file.size());
        try (FileReader reader = files.read(
                caller,
                id(exchange),
                user(exchange),
                new ReadFile(path, first, range.isPresent() ? length : 0, none()))) {
            send(exchange, range.isPresent() ? 206 : 200, reader, length);
        }
    }

    private static void describe(Exchange exchange, FileStat file) {
        exchange.responseHeader(
                "Last-Modified", HTTP_DATE.format(file.modifiedAt().atOffset(ZoneOffset.UTC)));
        exchange.responseHeader("X-Atoll-File", asciiJson(FileView.of(file)));
    }

    /** Headers are ASCII: everything else goes by its JSON escape. */
    private static String asciiJson(Object value) {
        String json = Json.text(value);
        var ascii = new StringBuilder(json.length() + 16);
        for (int i = 0; i < json.length(); i++) {
            char c = json.charAt(i);
            if (c < 0x7f) {
                ascii.append(c);
            } else {
                ascii.append("\\u%04x".formatted((int) c));
            }
        }
        return ascii.toString();
    }

    private static void send(Exchange exchange, int status, FileReader reader, long length)
            throws IOException, InterruptedException {
        // The size of what the system makes up as it is read (/proc) says nothing.
        boolean sized = length > 0 || reader.file().size() > 0;
        if (sized) {
            exchange.responseHeader("Content-Length", Long.toString(length));
        }
        ByteStream out = exchange.stream(status, BYTES);
        Optional<ByteBuffer> piece = reader.next();
        while (piece.isPresent()) {
            out.write(piece.get());
            piece = reader.next();
        }
        out.finish();
    }

    void write(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        BodyStream body = exchange.bodyStream();
        var what = new WriteFile(
                path(exchange),
                choice(exchange, "write", WriteFile.Mode.values(), WriteFile.Mode::text)
                        .orElse(WriteFile.Mode.REPLACE),
                exchange.query("offset", 0, 0, Long.MAX_VALUE),
                mode("mode", exchange.query("mode")),
                exchange.query("parents", true),
                Optional.empty(),
                exchange.queriesBeginningWith("attribute."),
                body.announcedLength());
        WrittenFile written = receive(exchange, caller, body, what);
        exchange.json(written.created() ? 201 : 200, Written.of(written));
    }

    private WrittenFile receive(Exchange exchange, Caller caller, BodyStream body, WriteFile what)
            throws IOException, InterruptedException {
        try (FileWriter writer = files.write(caller, id(exchange), user(exchange), what)) {
            Optional<ByteBuffer> piece = body.next();
            while (piece.isPresent()) {
                writer.write(piece.get());
                piece = body.next();
            }
            return writer.commit();
        }
    }

    void remove(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        answer(
                exchange,
                caller,
                user(exchange),
                new FileOperation.Remove(
                        path(exchange), exchange.query("recursive", false), exchange.query("force", false)));
    }

    void pack(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        ArchiveFormat format = format(exchange);
        String type = format == ArchiveFormat.TAR ? "application/x-tar" : "application/gzip";
        try (FileReader reader = files.read(
                caller, id(exchange), user(exchange), new ReadFile(path(exchange), 0, 0, Optional.of(format)))) {
            exchange.responseHeader("X-Atoll-File", asciiJson(FileView.of(reader.file())));
            ByteStream out = exchange.stream(200, type);
            if (!exchange.method().equals("HEAD")) {
                Optional<ByteBuffer> piece = reader.next();
                while (piece.isPresent()) {
                    out.write(piece.get());
                    piece = reader.next();
                }
            }
            out.finish();
        }
    }

    void unpack(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        BodyStream body = exchange.bodyStream();
        var what = new WriteFile(
                path(exchange),
                WriteFile.Mode.REPLACE,
                0,
                OptionalInt.empty(),
                exchange.query("parents", true),
                Optional.of(format(exchange)),
                Map.of(),
                OptionalLong.empty());
        WrittenFile written = receive(exchange, caller, body, what);
        exchange.json(200, new Unpacked(FileView.of(written.file()), written.files(), written.bytes()));
    }

    // Operations.

    private FileReply apply(Exchange exchange, Caller caller, String user, FileOperation operation) {
        return files.apply(caller, id(exchange), user, operation);
    }

    private void answer(Exchange exchange, Caller caller, String user, FileOperation operation)
            throws IOException, InterruptedException {
        exchange.json(200, Changed.of(apply(exchange, caller, user, operation)));
    }

    void stat(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var stat = new FileOperation.Stat(
                path(exchange), exchange.query("follow", false), exchange.query("attributes", false));
        FileReply reply = apply(exchange, caller, user(exchange), stat);
        exchange.json(
                200,
                FileView.of(
                        reply.file().orElseThrow(() -> AtollException.internal("nothing was said of a file", null))));
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var list = new FileOperation.ListFolder(
                path(exchange),
                (int) exchange.query("depth", 1, 1, 1000),
                exchange.query("hidden", true),
                (int) exchange.query("limit", FileOperation.ListFolder.MOST, 1, FileOperation.ListFolder.MOST),
                Optional.ofNullable(exchange.query("next")).orElse(""));
        FileReply reply = apply(exchange, caller, user(exchange), list);
        exchange.json(
                200, new Wire.Items<>(reply.entries().stream().map(FileView::of).toList(), reply.next()));
    }

    void find(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var find = new FileOperation.Find(
                path(exchange),
                Optional.ofNullable(exchange.query("name")).orElse(""),
                Optional.ofNullable(exchange.query("content")).orElse(""),
                exchange.query("regex", false),
                exchange.query("ignore_case", false),
                exchange.query("hidden", false),
                choice(exchange, "type", FileType.values(), FileType::text),
                (int) exchange.query("limit", 1000, 1, FileOperation.Find.MOST));
        FileReply reply = apply(exchange, caller, user(exchange), find);
        List<?> items = find.content().isEmpty()
                ? reply.entries().stream().map(FileView::of).toList()
                : reply.matches().stream()
                        .map(match ->
                                new Matched(match.path(), match.line(), match.text(), match.from(), match.length()))
                        .toList();
        exchange.json(200, new Found(items, reply.problems()));
    }

    void makeFolder(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Fields fields = new Fields(exchange.readJson(), FileSteps.MAKE_FOLDER);
        answer(exchange, caller, user(exchange, fields), FileSteps.makeFolder(fields));
    }

    void move(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Fields fields = new Fields(exchange.readJson(), FileSteps.MOVE);
        answer(exchange, caller, user(exchange, fields), FileSteps.move(fields));
    }

    void copy(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Fields fields = new Fields(exchange.readJson(), FileSteps.COPY);
        answer(exchange, caller, user(exchange, fields), FileSteps.copy(fields));
    }

    void change(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Fields fields = new Fields(exchange.readJson(), FileSteps.CHANGE);
        answer(exchange, caller, user(exchange, fields), FileSteps.change(fields));
    }

    void symlink(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Fields fields = new Fields(exchange.readJson(), FileSteps.SYMLINK);
        answer(exchange, caller, user(exchange, fields), FileSteps.symlink(fields));
    }

    void replace(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Fields fields = new Fields(exchange.readJson(), FileSteps.REPLACE);
        var replace = new FileOperation.Replace(
                fields.textList("paths").orElse(List.of()),
                fields.requiredText("pattern"),
                fields.requiredText("replacement"),
                fields.flag("regex"));
        FileReply reply = apply(exchange, caller, user(exchange, fields), replace);
        exchange.json(
                200,
                new Wire.Items<>(
                        reply.replaced().stream()
                                .map(one -> new Replaced(one.path(), one.count(), one.error()))
                                .toList(),
                        Optional.empty()));
    }

    void batch(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Fields fields = new Fields(exchange.readJson(), Set.of("operations", "stop_on_error", "user"));
        List<FileSteps.Step> steps = FileSteps.read(fields);
        List<BatchStep.Result> results = files.batch(
                caller,
                id(exchange),
                user(exchange, fields),
                steps.stream().map(FileSteps.Step::step).toList(),
                fields.flag("stop_on_error"));
        var items = new ArrayList<FileSteps.StepView>();
        for (int i = 0; i < results.size(); i++) {
            items.add(FileSteps.view(steps.get(i), results.get(i)));
        }
        exchange.json(200, new Wire.Items<>(items, Optional.empty()));
    }

    // Watches.

    /** With a watch's id the events that it gathered, else events as they happen. */
    void watch(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        String watch = exchange.query("watch_id");
        if (watch != null) {
            long after = exchange.query("after", 0, 0, Long.MAX_VALUE);
            Duration wait = Duration.ofSeconds(exchange.query("wait_seconds", 0, 0, LONGEST_WAIT_SECONDS));
            exchange.json(200, Events.of(files.poll(caller, id(exchange), WatchId.parse(watch), after, wait)));
            return;
        }
        boolean recursive = exchange.query("recursive", false);
        try (FileWatch events = files.watch(caller, id(exchange), user(exchange), path(exchange), recursive)) {
            stream(exchange, events);
        }
    }

    private static void stream(Exchange exchange, FileWatch watch) throws IOException, InterruptedException {
        EventStream events = exchange.events();
        try {
            while (true) {
                Optional<FileEvent> event = watch.next(Duration.ZERO);
                if (event.isEmpty()) {
                    events.flush();
                    event = watch.next(KEEP_ALIVE);
                }
                if (event.isEmpty()) {
                    events.keepAlive();
                } else {
                    events.event(EventStream.ascii(event.get().kind().text()), Event.of(event.get()));
                }
            }
        } catch (AtollException e) {
            events.event(EventStream.ascii("error"), ErrorTable.reply(e));
        }
        events.finish();
    }

    void startWatch(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        Fields fields = new Fields(exchange.readJson(), Set.of("path", "recursive", "user"));
        WatchId watch = files.startWatch(
                caller, id(exchange), user(exchange, fields), fields.requiredText("path"), fields.flag("recursive"));
        exchange.json(201, new WatchView(watch.text()));
    }

    void endWatch(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        String watch = exchange.query("watch_id");
        if (watch == null) {
            throw AtollException.invalid("watch_id is missing", "Name the watch that is to end.");
        }
        files.endWatch(caller, id(exchange), WatchId.parse(watch));
        exchange.json(200, new WatchView(watch));
    }

    // Parameters.

    private static SandboxId id(Exchange exchange) {
        return SandboxId.parse(exchange.path("sandbox_id"));
    }

    private static String path(Exchange exchange) {
        String path = exchange.query("path");
        if (path == null) {
            throw AtollException.invalid("path is missing", "Name it in the query: ?path=…");
        }
        return path;
    }

    private static String user(Exchange exchange) {
        return Optional.ofNullable(exchange.query("user")).orElse("");
    }

    /** In the body or in the query. */
    private static String user(Exchange exchange, Fields fields) {
        return fields.text("user").orElseGet(() -> user(exchange));
    }

    private static ArchiveFormat format(Exchange exchange) {
        return choice(exchange, "format", ArchiveFormat.values(), ArchiveFormat::text)
                .orElse(ArchiveFormat.TAR);
    }

    private static <T> Optional<T> choice(Exchange exchange, String name, T[] values, Function<T, String> text) {
        return Optional.ofNullable(exchange.query(name)).map(word -> Choices.of(name, word, values, text));
    }

    /** Permission bits as people write them: octal digits. */
    static OptionalInt mode(String name, @Nullable String text) {
        if (text == null) {
            return OptionalInt.empty();
        }
        if (text.isEmpty() || text.length() > 5 || !text.chars().allMatch(c -> c >= '0' && c <= '7')) {
            throw AtollException.invalid(
                    "%s: \"%s\" (expected: octal digits, for example 0644)".formatted(name, text),
                    "Correct the value.");
        }
        return OptionalInt.of(Integer.parseInt(text, 8));
    }
}
