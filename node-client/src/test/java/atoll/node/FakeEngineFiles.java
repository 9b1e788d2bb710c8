package atoll.node;

import atoll.core.AtollException;
import atoll.core.file.ArchiveFormat;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReply;
import atoll.core.file.FileStat;
import atoll.core.file.FileType;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;
import atoll.core.file.WrittenFile;
import atoll.proto.file.v1.FileEvent;
import atoll.proto.file.v1.FileEventType;
import atoll.proto.file.v1.FileInfo;
import atoll.proto.file.v1.FileRequest;
import atoll.proto.file.v1.Match;
import atoll.proto.file.v1.ReadFileRequest;
import atoll.proto.file.v1.Replaced;
import atoll.proto.file.v1.WriteFileOpen;
import atoll.proto.file.v1.WriteFileReply;
import io.grpc.Status;
import java.time.Instant;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;

/** The other half of {@code FileWire}. */
final class FakeEngineFiles {
    private FakeEngineFiles() {}

    /** As an agent says what its system said. */
    static Status status(AtollException e) {
        Status status = switch (e.code()) {
            case FILE_NOT_FOUND -> Status.NOT_FOUND;
            case FILE_EXISTS -> Status.ALREADY_EXISTS;
            case FILE_CONFLICT -> Status.FAILED_PRECONDITION;
            case PERMISSION_DENIED -> Status.PERMISSION_DENIED;
            case DISK_FULL -> Status.RESOURCE_EXHAUSTED;
            case INVALID_REQUEST -> Status.INVALID_ARGUMENT;
            case NODE_UNAVAILABLE, PORT_CLOSED -> Status.UNAVAILABLE;
            case NOT_FOUND -> Status.NOT_FOUND;
            case SNAPSHOT_NOT_FOUND -> Status.NOT_FOUND;
            case CONFLICT ->
                e.message().endsWith("exists already") ? Status.ALREADY_EXISTS : Status.FAILED_PRECONDITION;
            case SANDBOX_PAUSED, SNAPSHOT_UNUSABLE -> Status.FAILED_PRECONDITION;
            default -> Status.INTERNAL;
        };
        return status.withDescription(e.message());
    }

    static FileOperation operation(FileRequest request) {
        return switch (request.getOperationCase()) {
            case STAT ->
                new FileOperation.Stat(
                        request.getStat().getPath(),
                        request.getStat().getFollow(),
                        request.getStat().getAttributes());
            case LIST ->
                new FileOperation.ListFolder(
                        request.getList().getPath(),
                        request.getList().getDepth(),
                        request.getList().getHidden(),
                        request.getList().getLimit(),
                        request.getList().getAfter());
            case MAKE_DIRECTORY ->
                new FileOperation.MakeFolder(
                        request.getMakeDirectory().getPath(),
                        request.getMakeDirectory().getParents(),
                        mode(request.getMakeDirectory().getMode()),
                        request.getMakeDirectory().getExistOk());
            case MOVE ->
                new FileOperation.Move(
                        request.getMove().getFrom(),
                        request.getMove().getTo(),
                        request.getMove().getOverwrite(),
                        request.getMove().getParents());
            case COPY ->
                new FileOperation.Copy(
                        request.getCopy().getFrom(),
                        request.getCopy().getTo(),
                        request.getCopy().getOverwrite(),
                        request.getCopy().getRecursive(),
                        request.getCopy().getParents());
            case REMOVE ->
                new FileOperation.Remove(
                        request.getRemove().getPath(),
                        request.getRemove().getRecursive(),
                        request.getRemove().getForce());
            case CHMOD -> change(request);
            case FIND ->
                new FileOperation.Find(
                        request.getFind().getPath(),
                        request.getFind().getName(),
                        request.getFind().getContent(),
                        request.getFind().getRegularExpression(),
                        request.getFind().getIgnoreCase(),
                        request.getFind().getHidden(),
                        type(request.getFind().getType()),
                        request.getFind().getLimit());
            case REPLACE ->
                new FileOperation.Replace(
                        request.getReplace().getPathsList(),
                        request.getReplace().getPattern(),
                        request.getReplace().getReplacement(),
                        request.getReplace().getRegularExpression());
            case MAKE_SYMLINK ->
                new FileOperation.MakeSymlink(
                        request.getMakeSymlink().getPath(),
                        request.getMakeSymlink().getTarget());
            case DISK_USAGE ->
                new FileOperation.DiskUsage(request.getDiskUsage().getPath());
            case OPERATION_NOT_SET -> throw new IllegalArgumentException("no operation");
        };
    }

    private static FileOperation change(FileRequest request) {
        var chmod = request.getChmod();
        return new FileOperation.Change(
                chmod.getPath(),
                chmod.hasMode() ? OptionalInt.of(chmod.getMode()) : OptionalInt.empty(),
                optional(chmod.getOwner()),
                optional(chmod.getGroup()),
                chmod.getRecursive(),
                chmod.hasModifiedUnixNs()
                        ? Optional.of(Instant.EPOCH.plusNanos(chmod.getModifiedUnixNs()))
                        : Optional.empty());
    }

    private static OptionalInt mode(int mode) {
        return mode == 0 ? OptionalInt.empty() : OptionalInt.of(mode);
    }

    private static Optional<String> optional(String text) {
        return text.isEmpty() ? Optional.empty() : Optional.of(text);
    }

    private static Optional<FileType> type(atoll.proto.file.v1.FileType type) {
        return switch (type) {
            case FILE_TYPE_FILE -> Optional.of(FileType.FILE);
            case FILE_TYPE_DIRECTORY -> Optional.of(FileType.DIRECTORY);
            case FILE_TYPE_SYMLINK -> Optional.of(FileType.SYMLINK);
            case FILE_TYPE_OTHER -> Optional.of(FileType.OTHER);
            case FILE_TYPE_UNSPECIFIED, UNRECOGNIZED -> Optional.empty();
        };
    }

    private static atoll.proto.file.v1.FileType type(FileType type) {
        return atoll.proto.file.v1.FileType.valueOf("FILE_TYPE_" + type.name());
    }

    private static Optional<ArchiveFormat> archive(atoll.proto.file.v1.ArchiveFormat format) {
        return switch (format) {
            case ARCHIVE_FORMAT_TAR -> Optional.of(ArchiveFormat.TAR);
            case ARCHIVE_FORMAT_TAR_GZIP -> Optional.of(ArchiveFormat.TAR_GZIP);
            case ARCHIVE_FORMAT_NONE, UNRECOGNIZED -> Optional.empty();
        };
    }

    static ReadFile read(ReadFileRequest request) {
        return new ReadFile(request.getPath(), request.getOffset(), request.getLength(), archive(request.getArchive()));
    }

    static WriteFile write(WriteFileOpen open) {
        return new WriteFile(
                open.getPath(),
                WriteFile.Mode.valueOf(open.getMode().name().substring("WRITE_MODE_".length())),
                open.getOffset(),
                mode(open.getPermissions()),
                open.getParents(),
                archive(open.getArchive()),
                open.getAttributesMap(),
                open.getExpectedBytes() == 0 ? OptionalLong.empty() : OptionalLong.of(open.getExpectedBytes()));
    }

    static FileInfo info(FileStat stat) {
        FileInfo.Builder info = FileInfo.newBuilder()
                .setPath(stat.path())
                .setName(stat.name())
                .setType(type(stat.type()))
                .setSize(stat.size())
                .setMode(stat.mode())
                .setUid((int) stat.uid())
                .setGid((int) stat.gid())
                .setOwner(stat.owner())
                .setGroup(stat.group())
                .setModifiedUnixNs(nanos(stat.modifiedAt()))
                .setChangedUnixNs(nanos(stat.changedAt()))
                .setAccessedUnixNs(nanos(stat.accessedAt()))
                .setLinkTarget(stat.linkTarget().orElse(""))
                .setInode(stat.inode())
                .setLinks((int) stat.links());
        stat.targetType().ifPresent(type -> info.setTargetType(type(type)));
        return info.build();
    }

    private static long nanos(Instant at) {
        return at.getEpochSecond() * 1_000_000_000 + at.getNano();
    }

    static atoll.proto.file.v1.FileReply reply(FileReply reply) {
        var built = atoll.proto.file.v1.FileReply.newBuilder()
                .setNext(reply.next().orElse(""))
                .addAllProblems(reply.problems())
                .setChanged(reply.changed())
                .setDiskUsedBytes(reply.disk().usedBytes())
                .setDiskLimitBytes(reply.disk().limitBytes())
                .setInodesUsed(reply.disk().inodesUsed());
        reply.file().ifPresent(file -> built.setFile(info(file)));
        reply.entries().forEach(entry -> built.addEntries(info(entry)));
        reply.matches()
                .forEach(match -> built.addMatches(Match.newBuilder()
                        .setPath(match.path())
                        .setLine(match.line())
                        .setText(match.text())
                        .setFrom(match.from())
                        .setLength(match.length())));
        reply.replaced()
                .forEach(replaced -> built.addReplaced(Replaced.newBuilder()
                        .setPath(replaced.path())
                        .setCount(replaced.count())
                        .setError(replaced.error().orElse(""))));
        return built.build();
    }

    static WriteFileReply written(WrittenFile written) {
        return WriteFileReply.newBuilder()
                .setFile(info(written.file()))
                .setBytes(written.bytes())
                .setFiles(written.files())
                .setCreated(written.created())
                .build();
    }

    static FileEvent event(atoll.core.file.FileEvent event) {
        FileEvent.Builder built = FileEvent.newBuilder()
                .setType(FileEventType.valueOf("FILE_EVENT_TYPE_" + event.kind().name()))
                .setPath(event.path())
                .setName(event.name())
                .setAtUnixMs(event.at().toEpochMilli());
        event.fileType().ifPresent(type -> built.setFileType(type(type)));
        return built.build();
    }
}
