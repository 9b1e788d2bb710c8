package atoll.core.template;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.ProjectId;
import atoll.core.Scope;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.SequencedMap;
import java.util.zip.GZIPInputStream;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Uploads beside the build contexts. A ticket says what it is for and until when, and is signed with the installation's key: nothing is kept of it. */
public final class UploadService implements BuildUploads {
    private static final Duration TICKET = Duration.ofHours(1);
    private static final int LONGEST_NAME = 200;
    private static final int BUFFER = 64 << 10;

    private final TemplateFiles files;
    private final long most;
    private final byte[] key;
    private final InstantSource clock;

    /** @param most bytes of an upload, and of a context made of several */
    public UploadService(TemplateFiles files, long most, byte[] key, InstantSource clock) {
        this.files = files;
        this.most = most;
        this.key = key.clone();
        this.clock = clock;
    }

    @Override
    public void put(Caller caller, String name, InputStream content) throws IOException {
        caller.require(Scope.EXECUTE);
        put(caller.project(), name, content);
    }

    private void put(ProjectId project, String name, InputStream content) throws IOException {
        files.putUpload(id(project, name), content, most);
    }

    @Override
    public boolean has(Caller caller, String name) {
        caller.require(Scope.READ);
        return files.touchUpload(id(caller.project(), name));
    }

    @Override
    public Optional<InputStream> open(Caller caller, String name) {
        caller.require(Scope.READ);
        return files.upload(id(caller.project(), name));
    }

    @Override
    public String ticket(Caller caller, String name) {
        caller.require(Scope.EXECUTE);
        checkName(name);
        String what = caller.project() + "\n" + name + "\n"
                + clock.instant().plus(TICKET).getEpochSecond();
        Base64.Encoder url = Base64.getUrlEncoder().withoutPadding();
        return url.encodeToString(what.getBytes(StandardCharsets.UTF_8)) + "." + url.encodeToString(signature(what));
    }

    @Override
    public void putByTicket(String ticket, InputStream content) throws IOException {
        String[] parts = ticket.split("\\.", -1);
        if (parts.length == 2) {
            try {
                Base64.Decoder url = Base64.getUrlDecoder();
                String what = new String(url.decode(parts[0]), StandardCharsets.UTF_8);
                if (MessageDigest.isEqual(signature(what), url.decode(parts[1]))) {
                    List<String> fields = List.of(what.split("\n", -1));
                    if (clock.instant().isBefore(Instant.ofEpochSecond(Long.parseLong(fields.get(2))))) {
                        put(new ProjectId(fields.get(0)), fields.get(1), content);
                        return;
                    }
                }
            } catch (IllegalArgumentException _) {
                // No Base64: none of ours.
            }
        }
        throw new AtollException(
                ErrorCode.UNAUTHENTICATED,
                "ticket: it is not valid, or no longer (expected: one of the last hour)",
                "",
                "Ask for another one.");
    }

    @Override
    public BuildContext context(Caller caller, SequencedMap<String, String> byFolder) throws IOException {
        caller.require(Scope.EXECUTE);
        List<TarFolders.Part> parts = new ArrayList<>();
        try {
            for (Map.Entry<String, String> one : byFolder.entrySet()) {
                InputStream upload = unpacked(id(caller.project(), one.getValue()))
                        .orElseThrow(() -> AtollException.invalid(
                                "upload: \"" + TemplateDefinition.shown(one.getValue())
                                        + "\" is not there (expected: one that came within a day)",
                                "Upload it again."));
                parts.add(new TarFolders.Part(one.getKey(), upload));
            }
            try (var joined = new TarFolders(parts)) {
                return files.putContext(joined, most);
            } catch (TarFolders.NoTarException e) {
                throw AtollException.invalid("upload: " + e.getMessage(), "Upload a tar, as it is or packed by gzip.");
            }
        } finally {
            for (TarFolders.Part part : parts) {
                part.tar().close();
            }
        }
    }

    /** Empty if it is not there. What is packed by gzip is told by how it begins. */
    private Optional<InputStream> unpacked(String id) throws IOException {
        Optional<InputStream> upload = files.upload(id);
        if (upload.isEmpty()) {
            return upload;
        }
        byte[] magic;
        try (InputStream begin = upload.get()) {
            magic = begin.readNBytes(2);
        }
        boolean packed = magic.length == 2 && (magic[0] & 0xff) == 0x1f && (magic[1] & 0xff) == 0x8b;
        upload = files.upload(id);
        return packed && upload.isPresent() ? Optional.of(new GZIPInputStream(upload.get(), BUFFER)) : upload;
    }

    private static void checkName(String name) {
        if (name.isEmpty() || name.length() > LONGEST_NAME || name.chars().anyMatch(c -> c < ' ')) {
            throw AtollException.invalid(
                    "upload: a name of " + name.length() + " characters (expected: 1 to " + LONGEST_NAME
                            + ", none of them a control character)",
                    "Choose another name.");
        }
    }

    /** Of one project alone, and safe as the name of a file. */
    private static String id(ProjectId project, String name) {
        checkName(name);
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256")
                    .digest((project + "\n" + name).getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(hash);
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }

    private byte[] signature(String what) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            return mac.doFinal(("upload\n" + what).getBytes(StandardCharsets.UTF_8));
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("every Java platform has HmacSHA256", e);
        }
    }
}
