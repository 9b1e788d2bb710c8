package atoll.store;

import atoll.core.AtollException;
import atoll.core.BuildId;
import atoll.core.ErrorCode;
import atoll.core.template.BuildContext;
import atoll.core.template.TemplateFiles;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.DigestInputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Optional;
import java.util.Set;

/** Logs of builds, build contexts and uploads in a folder: {@code logs/ID.log}, {@code contexts/SHA256.tar} and {@code uploads/ID}. */
public final class FolderFiles implements TemplateFiles {
    private static final String LOG = ".log";
    private static final String TAR = ".tar";

    private final Path logs;
    private final Path contexts;
    private final Path uploads;

    private FolderFiles(Path logs, Path contexts, Path uploads) {
        this.logs = logs;
        this.contexts = contexts;
        this.uploads = uploads;
    }

    /** The files of this folder, which is made if it is not there. What an upload left behind that never ended is removed. */
    public static FolderFiles open(Path folder) throws IOException {
        var files = new FolderFiles(folder.resolve("logs"), folder.resolve("contexts"), folder.resolve("uploads"));
        for (Path path : new Path[] {folder, files.logs, files.contexts, files.uploads}) {
            Files.createDirectories(path);
            Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rwx------"));
        }
        for (Path path : new Path[] {files.contexts, files.uploads}) {
            try (DirectoryStream<Path> drafts = Files.newDirectoryStream(path, ".draft-*")) {
                for (Path draft : drafts) {
                    Files.delete(draft);
                }
            }
        }
        return files;
    }

    private Path log(BuildId build) {
        return logs.resolve(build + LOG);
    }

    @Override
    public void append(BuildId build, byte[] data) {
        try (OutputStream out =
                Files.newOutputStream(log(build), StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            out.write(data);
        } catch (IOException e) {
            throw failure("the log of build " + build + " could not be written", e);
        }
    }

    @Override
    public byte[] read(BuildId build, long offset, int most) {
        try (FileChannel channel = FileChannel.open(log(build), StandardOpenOption.READ)) {
            ByteBuffer buffer = ByteBuffer.allocate(Math.clamp(channel.size() - offset, 0, most));
            while (buffer.hasRemaining()) {
                int count = channel.read(buffer, offset + buffer.position());
                if (count < 0) {
                    break;
                }
            }
            return Arrays.copyOf(buffer.array(), buffer.position());
        } catch (NoSuchFileException e) {
            return new byte[0];
        } catch (IOException e) {
            throw failure("the log of build " + build + " could not be read", e);
        }
    }

    @Override
    public Set<BuildId> logs() {
        Set<BuildId> ids = new HashSet<>();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(logs, "*" + LOG)) {
            for (Path file : files) {
                String name = file.getFileName().toString();
                try {
                    ids.add(BuildId.parse(name.substring(0, name.length() - LOG.length())));
                } catch (AtollException _) {
                    // None of ours.
                }
            }
        } catch (IOException e) {
            throw failure("the logs of builds could not be listed", e);
        }
        return ids;
    }

    @Override
    public void deleteLog(BuildId build) {
        delete(log(build));
    }

    private static void delete(Path file) {
        try {
            Files.deleteIfExists(file);
        } catch (IOException e) {
            throw failure(file.getFileName() + " could not be removed", e);
        }
    }

    private Path context(Path folder, String digest) {
        if (!digest.matches("[0-9a-f]{64}")) {
            throw new IllegalArgumentException("digest: " + digest + " (expected: 64 hexadecimal digits)");
        }
        return folder.resolve(digest + TAR);
    }

    @Override
    public BuildContext putContext(InputStream data, long most) throws IOException {
        Path draft = Files.createTempFile(contexts, ".draft-", TAR);
        try {
            MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
            long bytes = copy(new DigestInputStream(data, sha256), draft, most);
            String digest = HexFormat.of().formatHex(sha256.digest());
            keep(draft, context(contexts, digest));
            return new BuildContext(digest, bytes);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        } finally {
            Files.deleteIfExists(draft);
        }
    }

    private static long copy(InputStream data, Path draft, long most) throws IOException {
        long bytes = 0;
        try (OutputStream out = Files.newOutputStream(draft)) {
            byte[] piece = new byte[64 << 10];
            for (int count = data.read(piece); count >= 0; count = data.read(piece)) {
                bytes += count;
                if (bytes > most) {
                    throw new AtollException(
                            ErrorCode.REQUEST_TOO_LARGE,
                            "context: more than " + most + " bytes (expected: at most so many)",
                            "",
                            "Leave out what the Dockerfile does not copy, or raise the setting build.max_context_mib.");
                }
                out.write(piece, 0, count);
            }
        }
        return bytes;
    }

    private static void keep(Path draft, Path file) throws IOException {
        Files.move(draft, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        Files.setLastModifiedTime(file, FileTime.from(Instant.now()));
    }

    @Override
    public Optional<InputStream> context(String digest) {
        try {
            return Optional.of(Files.newInputStream(context(contexts, digest)));
        } catch (NoSuchFileException e) {
            return Optional.empty();
        } catch (IOException e) {
            throw failure("a build context could not be read", e);
        }
    }

    @Override
    public Set<String> contexts(Instant before) {
        Set<String> digests = new HashSet<>();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(contexts, "*" + TAR)) {
            for (Path file : files) {
                String name = file.getFileName().toString();
                String digest = name.substring(0, name.length() - TAR.length());
                if (digest.matches("[0-9a-f]{64}")
                        && Files.getLastModifiedTime(file).toInstant().isBefore(before)) {
                    digests.add(digest);
                }
            }
        } catch (IOException | UncheckedIOException e) {
            throw failure("the build contexts could not be listed", e);
        }
        return digests;
    }

    @Override
    public void deleteContext(String digest) {
        delete(context(contexts, digest));
    }

    private Path upload(Path folder, String id) {
        if (!id.matches("[0-9a-f]{64}")) {
            throw new IllegalArgumentException("upload: " + id + " (expected: 64 hexadecimal digits)");
        }
        return folder.resolve(id);
    }

    @Override
    public void putUpload(String id, InputStream data, long most) throws IOException {
        Path file = upload(uploads, id);
        Path draft = Files.createTempFile(uploads, ".draft-", "");
        try {
            long bytes = copy(data, draft, most);
            assert bytes <= most;
            keep(draft, file);
        } finally {
            Files.deleteIfExists(draft);
        }
    }

    @Override
    public boolean touchUpload(String id) {
        try {
            Files.setLastModifiedTime(upload(uploads, id), FileTime.from(Instant.now()));
            return true;
        } catch (NoSuchFileException e) {
            return false;
        } catch (IOException e) {
            throw failure("an upload could not be kept", e);
        }
    }

    @Override
    public Optional<InputStream> upload(String id) {
        try {
            return Optional.of(Files.newInputStream(upload(uploads, id)));
        } catch (NoSuchFileException e) {
            return Optional.empty();
        } catch (IOException e) {
            throw failure("an upload could not be read", e);
        }
    }

    @Override
    public void deleteUploads(Instant before) {
        try (DirectoryStream<Path> all = Files.newDirectoryStream(uploads)) {
            for (Path file : all) {
                boolean draft = file.getFileName().toString().startsWith(".");
                if (!draft && Files.getLastModifiedTime(file).toInstant().isBefore(before)) {
                    Files.deleteIfExists(file);
                }
            }
        } catch (IOException | UncheckedIOException e) {
            throw failure("old uploads could not be removed", e);
        }
    }

    private static AtollException failure(String what, Exception e) {
        boolean full = String.valueOf(e.getMessage()).contains("No space left");
        return full
                ? new AtollException(
                        ErrorCode.DISK_FULL, what + ": " + e.getMessage(), "The disk is full.", "Free some of it.", e)
                : AtollException.internal(what, e);
    }
}
