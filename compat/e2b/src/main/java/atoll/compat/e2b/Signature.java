package atoll.compat.e2b;

import atoll.http.Exchange;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Instant;
import java.util.Base64;
import java.util.Objects;

/** Signed file addresses: SHA-256 over path, operation, user, token and expiry, as the SDKs make it on their side. */
final class Signature {
    private Signature() {}

    /** Whether the signature in the query was made with this token, for this path, user and operation, and has not expired. */
    static boolean fits(Exchange exchange, String token) {
        String expiry = exchange.query("signature_expiration");
        if (expiry != null) {
            try {
                if (Instant.now().getEpochSecond() > Long.parseLong(expiry)) {
                    return false;
                }
            } catch (NumberFormatException e) {
                return false;
            }
        }
        String operation = exchange.method().equals("POST") ? "write" : "read";
        String raw = Objects.requireNonNullElse(exchange.query("path"), "")
                + ":" + operation
                + ":" + Objects.requireNonNullElse(exchange.query("username"), "")
                + ":" + token
                + (expiry == null ? "" : ":" + expiry);
        byte[] expected = ("v1_" + hash(raw)).getBytes(StandardCharsets.UTF_8);
        byte[] given = String.valueOf(exchange.query("signature")).getBytes(StandardCharsets.UTF_8);
        return MessageDigest.isEqual(expected, given);
    }

    private static String hash(String text) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
            return Base64.getEncoder().withoutPadding().encodeToString(digest);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }
}
