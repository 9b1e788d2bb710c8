package atoll.store;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Set;
import javax.crypto.Cipher;
import javax.crypto.Mac;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/**
 * What an installation knows and nobody else may: its master key and the operator's API key, in a folder that only its user can read.
 * Whatever else must be known again is derived from the master key or sealed with it.
 */
public final class InstallationSecrets {
    private static final int NONCE_BYTES = 12;
    private static final int TAG_BITS = 128;
    private static final SecureRandom RANDOM = new SecureRandom();

    private final byte[] masterKey;
    private final String apiKey;

    private InstallationSecrets(byte[] masterKey, String apiKey) {
        this.masterKey = masterKey;
        this.apiKey = apiKey;
    }

    /** Reads the secrets of {@code folder}, and makes those that are missing. */
    public static InstallationSecrets open(Path folder) throws IOException {
        Files.createDirectories(folder);
        Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwx------"));
        String master = readOrMake(folder.resolve("master-key"), HexFormat.of().formatHex(random(32)));
        String apiKey = readOrMake(
                folder.resolve("api-key"),
                "atoll_" + Base64.getUrlEncoder().withoutPadding().encodeToString(random(32)));
        if (!master.matches("[0-9a-f]{64}") || apiKey.length() < 20) {
            throw new IOException(
                    "secrets in " + folder + ": a file is damaged (expected: 64 hex digits in master-key,"
                            + " at least 20 characters in api-key). Restore it from a backup: sealed data can't be read without.");
        }
        return new InstallationSecrets(HexFormat.of().parseHex(master), apiKey);
    }

    private static byte[] random(int count) {
        byte[] bytes = new byte[count];
        RANDOM.nextBytes(bytes);
        return bytes;
    }

    /** Whole or not at all: a crash in the middle must not leave half a key. */
    private static String readOrMake(Path file, String fresh) throws IOException {
        if (!Files.exists(file)) {
            Path draft = file.resolveSibling(
                    "." + file.getFileName() + "." + HexFormat.of().formatHex(random(4)));
            Set<StandardOpenOption> options = Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
            try (FileChannel channel = FileChannel.open(
                    draft,
                    options,
                    PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")))) {
                ByteBuffer text = ByteBuffer.wrap((fresh + "\n").getBytes(StandardCharsets.US_ASCII));
                while (text.hasRemaining()) {
                    int written = channel.write(text);
                    assert written > 0;
                }
                channel.force(true);
            }
            try {
                // A link fails where another process was first; a rename would replace its key.
                Path linked = Files.createLink(file, draft);
                assert linked.equals(file);
            } catch (FileAlreadyExistsException e) {
                assert Files.exists(file);
            } finally {
                Files.delete(draft);
            }
        }
        return Files.readString(file, StandardCharsets.US_ASCII).strip();
    }

    /** The operator's own key. */
    public String apiKey() {
        return apiKey;
    }

    /** A key for one purpose, always the same for the same purpose. */
    public byte[] derive(String purpose) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(masterKey, "HmacSHA256"));
            return mac.doFinal(("atoll/" + purpose).getBytes(StandardCharsets.UTF_8));
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("every Java platform has HmacSHA256", e);
        }
    }

    /** Text that only {@link #unseal} with the same purpose can read, and notices any change to. */
    public String seal(String purpose, String secret) {
        byte[] nonce = random(NONCE_BYTES);
        try {
            byte[] sealed =
                    cipher(Cipher.ENCRYPT_MODE, purpose, nonce).doFinal(secret.getBytes(StandardCharsets.UTF_8));
            byte[] whole = ByteBuffer.allocate(nonce.length + sealed.length)
                    .put(nonce)
                    .put(sealed)
                    .array();
            return Base64.getUrlEncoder().withoutPadding().encodeToString(whole);
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("sealing for " + purpose + " failed", e);
        }
    }

    /** The secret again; fails if it was sealed for something else, by another installation, or was changed. */
    public String unseal(String purpose, String sealed) {
        byte[] whole = Base64.getUrlDecoder().decode(sealed);
        if (whole.length < NONCE_BYTES) {
            throw new IllegalArgumentException(
                    "sealed text of " + whole.length + " bytes (expected: >= " + NONCE_BYTES + ")");
        }
        byte[] nonce = Arrays.copyOf(whole, NONCE_BYTES);
        try {
            byte[] text =
                    cipher(Cipher.DECRYPT_MODE, purpose, nonce).doFinal(whole, NONCE_BYTES, whole.length - NONCE_BYTES);
            return new String(text, StandardCharsets.UTF_8);
        } catch (GeneralSecurityException e) {
            throw new IllegalArgumentException(
                    "sealed text for " + purpose + " can't be opened: it was changed, or sealed by another key", e);
        }
    }

    private Cipher cipher(int mode, String purpose, byte[] nonce) throws GeneralSecurityException {
        Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
        cipher.init(mode, new SecretKeySpec(derive("seal/" + purpose), "AES"), new GCMParameterSpec(TAG_BITS, nonce));
        return cipher;
    }
}
