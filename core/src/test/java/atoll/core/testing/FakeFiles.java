package atoll.core.testing;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.file.ArchiveFormat;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReader;
import atoll.core.file.FileReply;
import atoll.core.file.FileStat;
import atoll.core.file.FileType;
import atoll.core.file.FileWriter;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;
import atoll.core.file.WrittenFile;
import atoll.core.node.NodeStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.TreeMap;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * The files of one sandbox, in memory: folders, files, symlinks, modes and owners, a disk that can be full, watches. Two users: {@code user}, whose home is
 * {@code /home/user} and who may not touch {@code /root}, and {@code root}, who may do all. Its archives are real, if plain, tar files.
 */
public final class FakeFiles {
    private static final Instant EPOCH = Instant.parse("2026-01-01T00:00:00Z");
    private static final String HOME = "/home/user";
    private static final int PIECE = 64 << 10;
    private static final int TAR_BLOCK = 512;

    /** Whether a stream that was opened on a connection may go on; throws if not. */
    interface Link {
        void check();
    }

    private static final class Entry {
        final FileType type;
        byte[] content = new byte[0];
        String target = "";
        int mode;
        String owner;
        Instant modified;
        final long inode;

        Entry(FileType type, int mode, String owner, Instant modified, long inode) {
            this.type = type;
            this.mode = mode;
            this.owner = owner;
            this.modified = modified;
            this.inode = inode;
        }
    }

    private final Object lock = new Object();
    private final TreeMap<String, Entry> entries = new TreeMap<>();
    private final List<Watcher> watchers = new ArrayList<>();
    private long inodes;
    private long diskBytes = Long.MAX_VALUE;
    private int brokenOff;

    public FakeFiles() {
        for (String folder : List.of("/", "/home", HOME, "/root", "/tmp")) {
            entries.put(folder, entry(FileType.DIRECTORY, 0755, folder.equals(HOME) ? "user" : "root"));
        }
    }

    /** Writes all there is, for a snapshot. */
    void save(DataOutputStream out) throws IOException {
        synchronized (lock) {
            out.writeLong(inodes);
            out.writeLong(diskBytes);
            out.writeInt(entries.size());
            for (Map.Entry<String, Entry> named : entries.entrySet()) {
                Entry entry = named.getValue();
                out.writeUTF(named.getKey());
                out.writeUTF(entry.type.name());
                out.writeInt(entry.mode);
                out.writeUTF(entry.owner);
                out.writeUTF(entry.modified.toString());
                out.writeLong(entry.inode);
                out.writeUTF(entry.target);
                out.writeInt(entry.content.length);
                out.write(entry.content);
            }
        }
    }

    /** Has nothing but what was saved from now on. */
    void load(DataInputStream in) throws IOException {
        synchronized (lock) {
            entries.clear();
            inodes = in.readLong();
            diskBytes = in.readLong();
            for (int left = in.readInt(); left > 0; left--) {
                String path = in.readUTF();
                Entry entry = new Entry(
                        FileType.valueOf(in.readUTF()),
                        in.readInt(),
                        in.readUTF(),
                        Instant.parse(in.readUTF()),
                        in.readLong());
                entry.target = in.readUTF();
                entry.content = in.readNBytes(in.readInt());
                entries.put(path, entry);
            }
        }
    }

    /** No more than so many bytes fit from now on. */
    public void limitDisk(long bytes) {
        synchronized (lock) {
            diskBytes = bytes;
        }
    }

    /** How many writes ended without a commit. */
    public int brokenOff() {
        synchronized (lock) {
            return brokenOff;
        }
    }

    /** So many watches are open. */
    public int watchers() {
        synchronized (lock) {
            return watchers.size();
        }
    }

    /** Puts something there that is no regular file. */
    public void makeFifo(String path) {
        synchronized (lock) {
            entries.put(path, entry(FileType.OTHER, 0644, "root"));
        }
    }

    private Entry entry(FileType type, int mode, String owner) {
        return new Entry(type, mode, owner, EPOCH.plusSeconds(inodes), ++inodes);
    }

    private static AtollException error(ErrorCode code, String message) {
        return new AtollException(code, message, "", "");
    }

    private static String parent(String path) {
        int slash = path.lastIndexOf('/');
        return slash == 0 ? "/" : path.substring(0, slash);
    }

    private static String name(String path) {
        return path.substring(path.lastIndexOf('/') + 1);
    }

    private static String who(String user) {
        return switch (user) {
            case "", "user", "1000" -> "user";
            case "root", "0" -> "root";
            default -> throw error(ErrorCode.INVALID_REQUEST, "user \"" + user + "\" is not known");
        };
    }

    /** Absolute, without "." and "..", symlinks of folders followed; what a symlink at its end says is the operation's to follow. */
    private String resolve(String user, String path) {
        String absolute = path.startsWith("/") ? path : HOME + "/" + (path.startsWith("~/") ? path.substring(2) : path);
        Deque<String> parts = new ArrayDeque<>();
        for (String part : absolute.split("/", -1)) {
            if (part.equals("..")) {
                parts.pollLast();
            } else if (!part.isEmpty() && !part.equals(".")) {
                if (part.length() > 255) {
                    throw error(ErrorCode.INVALID_REQUEST, part + ": file name too long");
                }
                parts.add(part);
            }
        }
        String resolved = "/" + String.join("/", parts);
        if (who(user).equals("user") && (resolved.equals("/root") || resolved.startsWith("/root/"))) {
            throw error(ErrorCode.PERMISSION_DENIED, resolved + ": permission denied");
        }
        return resolved;
    }

    private Entry need(String path) {
        Entry entry = entries.get(path);
        if (entry == null) {
            throw error(ErrorCode.FILE_NOT_FOUND, path + ": no such file or directory");
        }
        return entry;
    }

    private String followed(String path) {
        String at = path;
        for (int hops = 0; hops < 40; hops++) {
            Entry entry = entries.get(at);
            if (entry == null || entry.type != FileType.SYMLINK) {
                return at;
            }
            at = entry.target.startsWith("/") ? entry.target : resolve("root", parent(at) + "/" + entry.target);
        }
        throw error(ErrorCode.FILE_CONFLICT, path + ": too many levels of symbolic links");
    }

    private void needFolder(String path) {
        Entry entry = entries.get(path);
        if (entry == null) {
            throw error(ErrorCode.FILE_NOT_FOUND, path + ": no such file or directory");
        }
        if (entry.type != FileType.DIRECTORY) {
            throw error(ErrorCode.FILE_CONFLICT, path + ": not a directory");
        }
    }

    private void makeParents(String user, String path, boolean wanted) {
        String above = parent(path);
        if (wanted && !entries.containsKey(above)) {
            makeParents(user, above, true);
            put(above, entry(FileType.DIRECTORY, 0755, who(user)));
        }
        needFolder(above);
    }

    private void put(String path, Entry entry) {
        long used = entries.values().stream().mapToLong(e -> e.content.length).sum();
        if (used + entry.content.length > diskBytes) {
            throw error(ErrorCode.DISK_FULL, path + ": no space left on device");
        }
        entries.put(path, entry);
        tell(FileEvent.Kind.CREATE, path, entry.type);
    }

    private FileStat stat(String path, Entry entry) {
        Optional<FileType> targetType = entry.type == FileType.SYMLINK
                ? Optional.ofNullable(entries.get(followed(path))).map(e -> e.type)
                : Optional.empty();
        return new FileStat(
                path,
                name(path),
                entry.type,
                entry.content.length,
                entry.mode,
                entry.owner.equals("root") ? 0 : 1000,
                entry.owner.equals("root") ? 0 : 1000,
                entry.owner,
                entry.owner,
                entry.modified,
                entry.modified,
                entry.modified,
                entry.type == FileType.SYMLINK ? Optional.of(entry.target) : Optional.empty(),
                targetType,
                entry.inode,
                1,
                Map.of());
    }

    private static FileReply reply(@Nullable FileStat file, List<FileStat> entries, boolean changed) {
        return new FileReply(
                Optional.ofNullable(file),
                entries,
                List.of(),
                List.of(),
                Optional.empty(),
                List.of(),
                changed,
                FileReply.Disk.UNKNOWN);
    }

    private FileReply reply(String path, boolean changed) {
        return reply(stat(path, need(path)), List.of(), changed);
    }

    private List<String> below(String folder) {
        String prefix = folder.equals("/") ? "/" : folder + "/";
        return entries.tailMap(prefix, true).keySet().stream()
                .takeWhile(path -> path.startsWith(prefix))
                .filter(path -> !path.equals("/"))
                .toList();
    }

    FileReply apply(String user, FileOperation operation) {
        synchronized (lock) {
            return switch (operation) {
                case FileOperation.Stat stat -> {
                    String path = resolve(user, stat.path());
                    yield reply(stat.follow() ? followed(path) : path, false);
                }
                case FileOperation.ListFolder list -> list(user, list);
                case FileOperation.MakeFolder make -> make(user, make);
                case FileOperation.Move move -> move(user, move);
                case FileOperation.Copy copy -> copy(user, copy);
                case FileOperation.Remove remove -> remove(user, remove);
                case FileOperation.Change change -> change(user, change);
                case FileOperation.MakeSymlink link -> symlink(user, link);
                case FileOperation.Find find -> find(user, find);
                case FileOperation.Replace replace -> replace(user, replace);
                case FileOperation.DiskUsage _ ->
                    new FileReply(
                            Optional.empty(),
                            List.of(),
                            List.of(),
                            List.of(),
                            Optional.empty(),
                            List.of(),
                            false,
                            new FileReply.Disk(
                                    entries.values().stream()
                                            .mapToLong(e -> e.content.length)
                                            .sum(),
                                    diskBytes,
                                    entries.size()));
            };
        }
    }

    private FileReply list(String user, FileOperation.ListFolder list) {
        String folder = followed(resolve(user, list.path()));
        needFolder(folder);
        int own = folder.equals("/") ? 0 : folder.length();
        List<String> paths = below(folder).stream()
                .filter(path ->
                        path.substring(own).chars().filter(c -> c == '/').count() <= list.depth())
                .filter(path -> list.hidden() || !path.substring(own).contains("/."))
                .filter(path -> list.after().isEmpty() || path.compareTo(list.after()) > 0)
                .toList();
        List<FileStat> page = paths.stream()
                .limit(list.limit())
                .map(path -> stat(path, need(path)))
                .toList();
        Optional<String> next =
                paths.size() > page.size() ? Optional.of(page.getLast().path()) : Optional.empty();
        return new FileReply(
                Optional.of(stat(folder, need(folder))),
                page,
                List.of(),
                List.of(),
                next,
                List.of(),
                false,
                FileReply.Disk.UNKNOWN);
    }

    private FileReply make(String user, FileOperation.MakeFolder make) {
        String path = resolve(user, make.path());
        Entry there = entries.get(path);
        if (there != null) {
            if (!make.existOk() || there.type != FileType.DIRECTORY) {
                throw error(ErrorCode.FILE_EXISTS, path + ": file exists");
            }
            return reply(path, false);
        }
        makeParents(user, path, make.parents());
        put(path, entry(FileType.DIRECTORY, make.mode().orElse(0755), who(user)));
        return reply(path, true);
    }

    private void needFree(String to, boolean overwrite) {
        Entry there = entries.get(to);
        if (there == null) {
            return;
        }
        if (!overwrite) {
            throw error(ErrorCode.FILE_EXISTS, to + ": file exists");
        }
        if (there.type == FileType.DIRECTORY && !below(to).isEmpty()) {
            throw error(ErrorCode.FILE_CONFLICT, to + ": directory not empty");
        }
    }

    private FileReply move(String user, FileOperation.Move move) {
        String from = resolve(user, move.from());
        String to = resolve(user, move.to());
        Entry moved = need(from);
        needFree(to, move.overwrite());
        makeParents(user, to, move.parents());
        for (String path : below(from)) {
            entries.put(to + path.substring(from.length()), need(path));
            entries.remove(path);
        }
        entries.remove(from);
        tell(FileEvent.Kind.RENAME, from, moved.type);
        put(to, moved);
        return reply(to, true);
    }

    private FileReply copy(String user, FileOperation.Copy copy) {
        String from = resolve(user, copy.from());
        String to = resolve(user, copy.to());
        Entry original = need(from);
        if (original.type == FileType.DIRECTORY && !copy.recursive()) {
            throw error(ErrorCode.FILE_CONFLICT, from + ": is a directory");
        }
        needFree(to, copy.overwrite());
        makeParents(user, to, copy.parents());
        List<String> inside = below(from);
        put(to, copyOf(original, user));
        for (String path : inside) {
            put(to + path.substring(from.length()), copyOf(need(path), user));
        }
        return reply(to, true);
    }

    private Entry copyOf(Entry original, String user) {
        Entry copy = entry(original.type, original.mode, who(user));
        copy.content = original.content.clone();
        copy.target = original.target;
        return copy;
    }

    private FileReply remove(String user, FileOperation.Remove remove) {
        String path = resolve(user, remove.path());
        Entry there = entries.get(path);
        if (there == null && remove.force()) {
            return reply(null, List.of(), false);
        }
        Entry removed = need(path);
        if (removed.type == FileType.DIRECTORY
                && !remove.recursive()
                && !below(path).isEmpty()) {
            throw error(ErrorCode.FILE_CONFLICT, path + ": directory not empty");
        }
        FileStat last = stat(path, removed);
        below(path).forEach(entries::remove);
        entries.remove(path);
        tell(FileEvent.Kind.REMOVE, path, removed.type);
        return reply(last, List.of(), true);
    }

    private FileReply change(String user, FileOperation.Change change) {
        String path = resolve(user, change.path());
        Entry entry = need(path);
        if (change.owner().isPresent() && who(user).equals("user")) {
            throw error(ErrorCode.PERMISSION_DENIED, path + ": operation not permitted");
        }
        List<String> paths = new ArrayList<>(change.recursive() ? below(path) : List.of());
        paths.add(path);
        for (String each : paths) {
            Entry changed = need(each);
            changed.mode = change.mode().orElse(changed.mode);
            changed.owner = change.owner().map(FakeFiles::who).orElse(changed.owner);
            changed.modified = change.modifiedAt().orElse(changed.modified);
        }
        tell(FileEvent.Kind.CHMOD, path, entry.type);
        return reply(path, true);
    }

    private FileReply symlink(String user, FileOperation.MakeSymlink link) {
        String path = resolve(user, link.path());
        needFree(path, false);
        makeParents(user, path, false);
        Entry made = entry(FileType.SYMLINK, 0777, who(user));
        made.target = link.target();
        put(path, made);
        return reply(path, true);
    }

    private FileReply find(String user, FileOperation.Find find) {
        String folder = resolve(user, find.path());
        needFolder(folder);
        Predicate<String> named = find.name().isEmpty()
                ? name -> true
                : Pattern.compile(find.name()
                                .replace(".", "\\.")
                                .replace("*", ".*")
                                .replace("?", "."))
                        .asMatchPredicate();
        List<String> paths = below(folder).stream()
                .filter(path -> named.test(name(path)))
                .filter(path ->
                        find.hidden() || !path.substring(folder.length()).contains("/."))
                .filter(path ->
                        find.type().isEmpty() || need(path).type == find.type().get())
                .toList();
        if (find.content().isEmpty()) {
            return reply(
                    null,
                    paths.stream()
                            .limit(find.limit())
                            .map(path -> stat(path, need(path)))
                            .toList(),
                    false);
        }
        List<FileReply.Match> matches = matches(find, paths);
        return new FileReply(
                Optional.empty(),
                List.of(),
                matches,
                List.of(),
                Optional.empty(),
                List.of(),
                false,
                FileReply.Disk.UNKNOWN);
    }

    private List<FileReply.Match> matches(FileOperation.Find find, List<String> paths) {
        int flags = find.ignoreCase() ? Pattern.CASE_INSENSITIVE : 0;
        Pattern wanted = Pattern.compile(find.regex() ? find.content() : Pattern.quote(find.content()), flags);
        List<FileReply.Match> matches = new ArrayList<>();
        for (String path : paths) {
            String[] lines = new String(need(path).content, StandardCharsets.UTF_8).split("\n", -1);
            for (int i = 0; i < lines.length && matches.size() < find.limit(); i++) {
                Matcher matcher = wanted.matcher(lines[i]);
                if (matcher.find()) {
                    matches.add(new FileReply.Match(
                            path, i + 1L, lines[i], matcher.start(), matcher.end() - matcher.start()));
                }
            }
        }
        return matches;
    }

    private FileReply replace(String user, FileOperation.Replace replace) {
        Pattern wanted = Pattern.compile(replace.regex() ? replace.pattern() : Pattern.quote(replace.pattern()));
        List<FileReply.Replaced> replaced = new ArrayList<>();
        for (String given : replace.paths()) {
            String path = resolve(user, given);
            Entry entry = entries.get(path);
            if (entry == null || entry.type != FileType.FILE) {
                replaced.add(new FileReply.Replaced(given, 0, Optional.of("no such file or directory")));
                continue;
            }
            Matcher matcher = wanted.matcher(new String(entry.content, StandardCharsets.UTF_8));
            int count = (int) matcher.results().count();
            entry.content = matcher.replaceAll(
                            replace.regex() ? replace.replacement() : Matcher.quoteReplacement(replace.replacement()))
                    .getBytes(StandardCharsets.UTF_8);
            tell(FileEvent.Kind.WRITE, path, FileType.FILE);
            replaced.add(new FileReply.Replaced(path, count, Optional.empty()));
        }
        return new FileReply(
                Optional.empty(),
                List.of(),
                List.of(),
                replaced,
                Optional.empty(),
                List.of(),
                true,
                FileReply.Disk.UNKNOWN);
    }

    FileReader read(String user, ReadFile what, Link link) {
        synchronized (lock) {
            String path = followed(resolve(user, what.path()));
            Entry entry = need(path);
            if (what.archive().isEmpty() && entry.type != FileType.FILE) {
                String why = entry.type == FileType.DIRECTORY ? "is a directory" : "is no regular file";
                throw error(ErrorCode.FILE_CONFLICT, path + ": " + why);
            }
            byte[] all = what.archive().isPresent() ? tar(path) : entry.content;
            int from = (int) Math.min(what.offset(), all.length);
            int to = what.length() == 0 ? all.length : (int) Math.min(all.length, from + what.length());
            return new Reading(stat(path, entry), ByteBuffer.wrap(all, from, to - from), link);
        }
    }

    private static final class Reading implements FileReader {
        private final FileStat file;
        private final ByteBuffer rest;
        private final Link link;

        Reading(FileStat file, ByteBuffer rest, Link link) {
            this.file = file;
            this.rest = rest;
            this.link = link;
        }

        @Override
        public FileStat file() {
            return file;
        }

        @Override
        public Optional<ByteBuffer> next() {
            link.check();
            if (!rest.hasRemaining()) {
                return Optional.empty();
            }
            int size = Math.min(PIECE, rest.remaining());
            ByteBuffer piece = rest.slice(rest.position(), size);
            rest.position(rest.position() + size);
            return Optional.of(piece);
        }

        @Override
        public void close() {
            rest.position(rest.limit());
        }
    }

    private byte[] tar(String folder) {
        var archive = new ByteArrayOutputStream();
        for (String path : below(folder)) {
            Entry entry = need(path);
            byte[] header = new byte[TAR_BLOCK];
            String suffix = entry.type == FileType.DIRECTORY ? "/" : "";
            ascii(header, 0, path.substring(folder.length() + 1) + suffix);
            ascii(header, 100, "%07o".formatted(entry.mode));
            ascii(header, 124, "%011o".formatted(entry.content.length));
            header[156] = (byte)
                    switch (entry.type) {
                        case DIRECTORY -> '5';
                        case SYMLINK -> '2';
                        case FILE, OTHER -> '0';
                    };
            ascii(header, 157, entry.target);
            ascii(header, 257, "ustar");
            archive.writeBytes(header);
            archive.writeBytes(entry.content);
            archive.writeBytes(new byte[(TAR_BLOCK - entry.content.length % TAR_BLOCK) % TAR_BLOCK]);
        }
        archive.writeBytes(new byte[2 * TAR_BLOCK]);
        return archive.toByteArray();
    }

    private static void ascii(byte[] header, int at, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        System.arraycopy(bytes, 0, header, at, bytes.length);
    }

    private static String text(byte[] header, int at, int most) {
        int end = at;
        while (end < at + most && header[end] != 0) {
            end++;
        }
        return new String(header, at, end - at, StandardCharsets.UTF_8);
    }

    private long untar(String user, String folder, byte[] archive) {
        long files = 0;
        int at = 0;
        while (at + TAR_BLOCK <= archive.length && archive[at] != 0) {
            byte[] header = java.util.Arrays.copyOfRange(archive, at, at + TAR_BLOCK);
            String named = text(header, 0, 100);
            if (named.startsWith("/") || ("/" + named + "/").contains("/../")) {
                throw error(ErrorCode.INVALID_REQUEST, named + ": lies outside the folder");
            }
            int size = Integer.parseInt(text(header, 124, 12).strip(), 8);
            String path = resolve(user, folder + "/" + named);
            FileType type =
                    header[156] == '5' ? FileType.DIRECTORY : header[156] == '2' ? FileType.SYMLINK : FileType.FILE;
            Entry entry = entry(type, Integer.parseInt(text(header, 100, 8).strip(), 8), who(user));
            entry.target = text(header, 157, 100);
            entry.content = java.util.Arrays.copyOfRange(archive, at + TAR_BLOCK, at + TAR_BLOCK + size);
            makeParents(user, path, true);
            put(path, entry);
            files++;
            at += TAR_BLOCK + (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
        }
        return files;
    }

    FileWriter write(String user, WriteFile what, Link link) {
        return new Writing(user, what, link);
    }

    private final class Writing implements FileWriter {
        private final String user;
        private final WriteFile what;
        private final Link link;
        private final ByteArrayOutputStream data = new ByteArrayOutputStream();
        private boolean over;

        Writing(String user, WriteFile what, Link link) {
            this.user = user;
            this.what = what;
            this.link = link;
        }

        @Override
        public void write(ByteBuffer piece) {
            link.check();
            if (piece.remaining() > LARGEST_PIECE) {
                throw new IllegalArgumentException("piece: %d bytes".formatted(piece.remaining()));
            }
            byte[] bytes = new byte[piece.remaining()];
            piece.duplicate().get(bytes);
            data.writeBytes(bytes);
        }

        @Override
        public WrittenFile commit() {
            link.check();
            over = true;
            synchronized (lock) {
                String path = followed(resolve(user, what.path()));
                if (what.archive().isPresent()) {
                    if (what.archive().get() != ArchiveFormat.TAR) {
                        throw error(ErrorCode.INVALID_REQUEST, "this fake packs tar only");
                    }
                    if (!entries.containsKey(path)) {
                        makeParents(user, path + "/x", true);
                    }
                    needFolder(path);
                    long files = untar(user, path, data.toByteArray());
                    return new WrittenFile(stat(path, need(path)), data.size(), files, false);
                }
                return written(path);
            }
        }

        private WrittenFile written(String path) {
            Entry there = entries.get(path);
            if (there != null && there.type != FileType.FILE) {
                throw error(ErrorCode.FILE_CONFLICT, path + ": is a directory");
            }
            if (there != null && what.mode() == WriteFile.Mode.CREATE) {
                throw error(ErrorCode.FILE_EXISTS, path + ": file exists");
            }
            makeParents(user, path, what.parents());
            byte[] before = there == null ? new byte[0] : there.content;
            OptionalInt mode = what.permissions();
            Entry made = entry(
                    FileType.FILE,
                    there == null ? mode.orElse(0644) : there.mode,
                    there == null ? who(user) : there.owner);
            made.content = switch (what.mode()) {
                case REPLACE, CREATE -> data.toByteArray();
                case APPEND -> at(before, before.length);
                case AT_OFFSET -> at(before, (int) what.offset());
            };
            put(path, made);
            tell(FileEvent.Kind.WRITE, path, FileType.FILE);
            return new WrittenFile(stat(path, made), data.size(), 0, there == null);
        }

        private byte[] at(byte[] before, int offset) {
            byte[] now = java.util.Arrays.copyOf(before, Math.max(before.length, offset + data.size()));
            System.arraycopy(data.toByteArray(), 0, now, offset, data.size());
            return now;
        }

        @Override
        public void close() {
            synchronized (lock) {
                if (!over) {
                    over = true;
                    brokenOff++;
                }
            }
        }
    }

    NodeStream<FileEvent> watch(String user, String path, boolean recursive, Link link) {
        synchronized (lock) {
            String folder = followed(resolve(user, path));
            needFolder(folder);
            var watcher = new Watcher(folder, recursive, link);
            watcher.events.add(new FileEvent(FileEvent.Kind.READY, folder, "", Optional.empty(), EPOCH));
            watchers.add(watcher);
            return watcher;
        }
    }

    /** A change that nobody made. */
    public void tell(FileEvent.Kind kind, String path) {
        synchronized (lock) {
            tell(kind, path, FileType.FILE);
        }
    }

    private void tell(FileEvent.Kind kind, String path, FileType type) {
        for (Watcher watcher : watchers) {
            String prefix = watcher.folder.equals("/") ? "/" : watcher.folder + "/";
            if (path.startsWith(prefix) && (watcher.recursive || path.indexOf('/', prefix.length()) < 0)) {
                watcher.events.add(
                        new FileEvent(kind, path, path.substring(prefix.length()), Optional.of(type), EPOCH));
            }
        }
        lock.notifyAll();
    }

    private final class Watcher implements NodeStream<FileEvent> {
        final String folder;
        final boolean recursive;
        final Deque<FileEvent> events = new ArrayDeque<>();
        private final Link link;
        private boolean closed;

        Watcher(String folder, boolean recursive, Link link) {
            this.folder = folder;
            this.recursive = recursive;
            this.link = link;
        }

        @Override
        public Optional<FileEvent> next() throws InterruptedException {
            while (true) {
                link.check();
                synchronized (lock) {
                    if (closed) {
                        throw error(ErrorCode.NODE_UNAVAILABLE, "the watch was closed");
                    }
                    FileEvent event = events.poll();
                    if (event != null) {
                        return Optional.of(event);
                    }
                    // Now and then to see what became of the connection.
                    lock.wait(10);
                }
            }
        }

        @Override
        public void close() {
            synchronized (lock) {
                closed = true;
                watchers.remove(this);
                lock.notifyAll();
            }
        }
    }
}
