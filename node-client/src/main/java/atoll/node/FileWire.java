package atoll.node;

import atoll.core.file.ArchiveFormat;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReply;
import atoll.core.file.FileStat;
import atoll.core.file.FileType;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;
import atoll.core.file.WrittenFile;
import atoll.proto.file.v1.Chmod;
import atoll.proto.file.v1.Copy;
import atoll.proto.file.v1.DiskUsage;
import atoll.proto.file.v1.FileInfo;
import atoll.proto.file.v1.FileRequest;
import atoll.proto.file.v1.Find;
import atoll.proto.file.v1.List;
import atoll.proto.file.v1.MakeDirectory;
import atoll.proto.file.v1.MakeSymlink;
import atoll.proto.file.v1.Move;
import atoll.proto.file.v1.ReadFileRequest;
import atoll.proto.file.v1.Remove;
import atoll.proto.file.v1.Replace;
import atoll.proto.file.v1.Stat;
import atoll.proto.file.v1.WriteFileOpen;
import atoll.proto.file.v1.WriteFileReply;
import atoll.proto.file.v1.WriteMode;
import java.time.Instant;
import java.util.Optional;

/** Files, between core and the engine's protocol. */
final class FileWire {
    private static final long NANOS = 1_000_000_000;
    /** The largest line or number of a match that an answer may carry; what a sandbox says beyond it is cut. */
    private static final int LARGEST = Integer.MAX_VALUE;

    private FileWire() {}

    static FileRequest request(String user, FileOperation operation) {
        FileRequest.Builder request = FileRequest.newBuilder().setUser(user);
        switch (operation) {
            case FileOperation.Stat stat ->
                request.setStat(Stat.newBuilder()
                        .setPath(stat.path())
                        .setFollow(stat.follow())
                        .setAttributes(stat.attributes()));
            case FileOperation.ListFolder list ->
                request.setList(List.newBuilder()
                        .setPath(list.path())
                        .setDepth(list.depth())
                        .setHidden(list.hidden())
                        .setLimit(list.limit())
                        .setAfter(list.after()));
            case FileOperation.MakeFolder make ->
                request.setMakeDirectory(MakeDirectory.newBuilder()
                        .setPath(make.path())
                        .setParents(make.parents())
                        .setMode(make.mode().orElse(0))
                        .setExistOk(make.existOk()));
            case FileOperation.Move move ->
                request.setMove(Move.newBuilder()
                        .setFrom(move.from())
                        .setTo(move.to())
                        .setOverwrite(move.overwrite())
                        .setParents(move.parents()));
            case FileOperation.Copy copy ->
                request.setCopy(Copy.newBuilder()
                        .setFrom(copy.from())
                        .setTo(copy.to())
                        .setOverwrite(copy.overwrite())
                        .setRecursive(copy.recursive())
                        .setParents(copy.parents()));
            case FileOperation.Remove remove ->
                request.setRemove(Remove.newBuilder()
                        .setPath(remove.path())
                        .setRecursive(remove.recursive())
                        .setForce(remove.force()));
            case FileOperation.Change change -> request.setChmod(chmod(change));
            case FileOperation.MakeSymlink link ->
                request.setMakeSymlink(
                        MakeSymlink.newBuilder().setPath(link.path()).setTarget(link.target()));
            case FileOperation.Find find ->
                request.setFind(Find.newBuilder()
                        .setPath(find.path())
                        .setName(find.name())
                        .setContent(find.content())
                        .setRegularExpression(find.regex())
                        .setIgnoreCase(find.ignoreCase())
                        .setHidden(find.hidden())
                        .setLimit(find.limit())
                        .setType(find.type()
                                .map(FileWire::type)
                                .orElse(atoll.proto.file.v1.FileType.FILE_TYPE_UNSPECIFIED)));
            case FileOperation.Replace replace ->
                request.setReplace(Replace.newBuilder()
                        .addAllPaths(replace.paths())
                        .setPattern(replace.pattern())
                        .setReplacement(replace.replacement())
                        .setRegularExpression(replace.regex()));
            case FileOperation.DiskUsage usage ->
                request.setDiskUsage(DiskUsage.newBuilder().setPath(usage.path()));
        }
        return request.build();
    }

    private static Chmod chmod(FileOperation.Change change) {
        Chmod.Builder chmod = Chmod.newBuilder()
                .setPath(change.path())
                .setOwner(change.owner().orElse(""))
                .setGroup(change.group().orElse(""))
                .setRecursive(change.recursive());
        change.mode().ifPresent(chmod::setMode);
        change.modifiedAt().ifPresent(at -> chmod.setModifiedUnixNs(nanos(at)));
        return chmod.build();
    }

    static ReadFileRequest read(String user, ReadFile what) {
        return ReadFileRequest.newBuilder()
                .setUser(user)
                .setPath(what.path())
                .setOffset(what.offset())
                .setLength(what.length())
                .setArchive(format(what.archive()))
                .build();
    }

    static WriteFileOpen write(String user, WriteFile what) {
        return WriteFileOpen.newBuilder()
                .setUser(user)
                .setPath(what.path())
                .setMode(
                        switch (what.mode()) {
                            case REPLACE -> WriteMode.WRITE_MODE_REPLACE;
                            case APPEND -> WriteMode.WRITE_MODE_APPEND;
                            case AT_OFFSET -> WriteMode.WRITE_MODE_AT_OFFSET;
                            case CREATE -> WriteMode.WRITE_MODE_CREATE;
                        })
                .setOffset(what.offset())
                .setPermissions(what.permissions().orElse(0))
                .setParents(what.parents())
                .setArchive(format(what.archive()))
                .putAllAttributes(what.attributes())
                .setExpectedBytes(what.expectedBytes().orElse(0))
                .build();
    }

    private static atoll.proto.file.v1.ArchiveFormat format(Optional<ArchiveFormat> format) {
        return format.map(wanted -> switch (wanted) {
                    case TAR -> atoll.proto.file.v1.ArchiveFormat.ARCHIVE_FORMAT_TAR;
                    case TAR_GZIP -> atoll.proto.file.v1.ArchiveFormat.ARCHIVE_FORMAT_TAR_GZIP;
                })
                .orElse(atoll.proto.file.v1.ArchiveFormat.ARCHIVE_FORMAT_NONE);
    }

    static FileReply reply(atoll.proto.file.v1.FileReply reply) {
        return new FileReply(
                reply.hasFile() ? Optional.of(stat(reply.getFile())) : Optional.empty(),
                reply.getEntriesList().stream().map(FileWire::stat).toList(),
                reply.getMatchesList().stream()
                        .map(match -> new FileReply.Match(
                                match.getPath(),
                                match.getLine(),
                                match.getText(),
                                whole(match.getFrom()),
                                whole(match.getLength())))
                        .toList(),
                reply.getReplacedList().stream()
                        .map(replaced -> new FileReply.Replaced(
                                replaced.getPath(), whole(replaced.getCount()), optional(replaced.getError())))
                        .toList(),
                optional(reply.getNext()),
                java.util.List.copyOf(reply.getProblemsList()),
                reply.getChanged(),
                new FileReply.Disk(reply.getDiskUsedBytes(), reply.getDiskLimitBytes(), reply.getInodesUsed()));
    }

    private static int whole(int unsigned) {
        return unsigned < 0 ? LARGEST : unsigned;
    }

    private static Optional<String> optional(String text) {
        return text.isEmpty() ? Optional.empty() : Optional.of(text);
    }

    static FileStat stat(FileInfo info) {
        FileType type = type(info.getType()).orElse(FileType.OTHER);
        return new FileStat(
                info.getPath(),
                info.getName(),
                type,
                info.getSize(),
                info.getMode() & 07777,
                Integer.toUnsignedLong(info.getUid()),
                Integer.toUnsignedLong(info.getGid()),
                info.getOwner(),
                info.getGroup(),
                instant(info.getModifiedUnixNs()),
                instant(info.getChangedUnixNs()),
                instant(info.getAccessedUnixNs()),
                type == FileType.SYMLINK ? Optional.of(info.getLinkTarget()) : Optional.empty(),
                type(info.getTargetType()),
                info.getInode(),
                Integer.toUnsignedLong(info.getLinks()),
                info.getAttributesMap());
    }

    private static Instant instant(long unixNanos) {
        return Instant.ofEpochSecond(Math.floorDiv(unixNanos, NANOS), Math.floorMod(unixNanos, NANOS));
    }

    private static long nanos(Instant at) {
        return Math.addExact(Math.multiplyExact(at.getEpochSecond(), NANOS), at.getNano());
    }

    private static atoll.proto.file.v1.FileType type(FileType type) {
        return switch (type) {
            case FILE -> atoll.proto.file.v1.FileType.FILE_TYPE_FILE;
            case DIRECTORY -> atoll.proto.file.v1.FileType.FILE_TYPE_DIRECTORY;
            case SYMLINK -> atoll.proto.file.v1.FileType.FILE_TYPE_SYMLINK;
            case OTHER -> atoll.proto.file.v1.FileType.FILE_TYPE_OTHER;
        };
    }

    private static Optional<FileType> type(atoll.proto.file.v1.FileType type) {
        return switch (type) {
            case FILE_TYPE_FILE -> Optional.of(FileType.FILE);
            case FILE_TYPE_DIRECTORY -> Optional.of(FileType.DIRECTORY);
            case FILE_TYPE_SYMLINK -> Optional.of(FileType.SYMLINK);
            case FILE_TYPE_OTHER, UNRECOGNIZED -> Optional.of(FileType.OTHER);
            case FILE_TYPE_UNSPECIFIED -> Optional.empty();
        };
    }

    static WrittenFile written(WriteFileReply reply) {
        return new WrittenFile(stat(reply.getFile()), reply.getBytes(), reply.getFiles(), reply.getCreated());
    }

    static FileEvent event(atoll.proto.file.v1.FileEvent event) {
        FileEvent.Kind kind = switch (event.getType()) {
            case FILE_EVENT_TYPE_READY -> FileEvent.Kind.READY;
            case FILE_EVENT_TYPE_CREATE -> FileEvent.Kind.CREATE;
            case FILE_EVENT_TYPE_WRITE -> FileEvent.Kind.WRITE;
            case FILE_EVENT_TYPE_REMOVE -> FileEvent.Kind.REMOVE;
            case FILE_EVENT_TYPE_RENAME -> FileEvent.Kind.RENAME;
            case FILE_EVENT_TYPE_CHMOD -> FileEvent.Kind.CHMOD;
            // What a newer agent says and we don't know: the folder is worth a look.
            case FILE_EVENT_TYPE_OVERFLOW, FILE_EVENT_TYPE_UNSPECIFIED, UNRECOGNIZED -> FileEvent.Kind.OVERFLOW;
        };
        return new FileEvent(
                kind,
                event.getPath(),
                event.getName(),
                type(event.getFileType()),
                Instant.ofEpochMilli(event.getAtUnixMs()));
    }
}
