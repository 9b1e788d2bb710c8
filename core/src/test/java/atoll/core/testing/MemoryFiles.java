package atoll.core.testing;

import atoll.core.AtollException;
import atoll.core.BuildId;
import atoll.core.ErrorCode;
import atoll.core.template.BuildContext;
import atoll.core.template.TemplateFiles;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/** Logs and contexts in memory. All contexts are of the beginning of time. */
public final class MemoryFiles implements TemplateFiles {
    private final Map<BuildId, ByteArrayOutputStream> logs = new HashMap<>();
    private final Map<String, byte[]> contexts = new HashMap<>();
    private final Map<String, byte[]> uploads = new HashMap<>();

    @Override
    public synchronized void append(BuildId build, byte[] data) {
        logs.computeIfAbsent(build, _ -> new ByteArrayOutputStream()).writeBytes(data);
    }

    @Override
    public synchronized byte[] read(BuildId build, long offset, int most) {
        ByteArrayOutputStream log = logs.get(build);
        if (log == null || offset >= log.size()) {
            return new byte[0];
        }
        byte[] all = log.toByteArray();
        return Arrays.copyOfRange(all, (int) offset, (int) Math.min(all.length, offset + most));
    }

    @Override
    public synchronized Set<BuildId> logs() {
        return Set.copyOf(logs.keySet());
    }

    @Override
    public synchronized void deleteLog(BuildId build) {
        logs.remove(build);
    }

    @Override
    public BuildContext putContext(InputStream data, long most) throws IOException {
        byte[] all = all(data, most);
        try {
            String digest = HexFormat.of()
                    .formatHex(MessageDigest.getInstance("SHA-256").digest(all));
            synchronized (this) {
                contexts.put(digest, all);
            }
            return new BuildContext(digest, all.length);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }

    @Override
    public synchronized Optional<InputStream> context(String digest) {
        return Optional.ofNullable(contexts.get(digest)).map(ByteArrayInputStream::new);
    }

    @Override
    public synchronized Set<String> contexts(Instant before) {
        return Set.copyOf(contexts.keySet());
    }

    @Override
    public synchronized void deleteContext(String digest) {
        contexts.remove(digest);
    }

    private static byte[] all(InputStream data, long most) throws IOException {
        byte[] all = data.readAllBytes();
        if (all.length > most) {
            throw new AtollException(
                    ErrorCode.REQUEST_TOO_LARGE,
                    "context: more than " + most + " bytes (expected: at most so many)",
                    "",
                    "Leave out what the Dockerfile does not copy.");
        }
        return all;
    }

    @Override
    public void putUpload(String id, InputStream data, long most) throws IOException {
        byte[] all = all(data, most);
        synchronized (this) {
            uploads.put(id, all);
        }
    }

    @Override
    public synchronized boolean touchUpload(String id) {
        return uploads.containsKey(id);
    }

    @Override
    public synchronized Optional<InputStream> upload(String id) {
        return Optional.ofNullable(uploads.get(id)).map(ByteArrayInputStream::new);
    }

    @Override
    public synchronized void deleteUploads(Instant before) {
        uploads.clear();
    }
}
