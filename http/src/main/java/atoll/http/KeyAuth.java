package atoll.http;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * Lets only requests with a known API key through, given as {@code Authorization: Bearer KEY} or {@code X-API-Key: KEY}.
 *
 * <p>Known keys are remembered for a short while (that long a revoked key may still work), by their SHA-256, which is compared in constant time.
 *
 * @param <C> what is known of a caller
 */
public final class KeyAuth<C> {
    private static final int MAX_REMEMBERED = 4096;

    /** Finds the caller behind a key, or throws what the server's {@link ErrorMapping} turns into an answer. Must not say by its time how much was right. */
    @FunctionalInterface
    public interface Lookup<C> {
        C byKey(String key);
    }

    /** A handler that is told who calls. */
    @FunctionalInterface
    public interface CallerHandler<C> {
        void handle(Exchange exchange, C caller) throws Exception;
    }

    @SuppressWarnings("ArrayRecordComponent") // compared by MessageDigest.isEqual alone
    private record Remembered<C>(byte[] hash, C caller, long untilNanos) {}

    private final Lookup<C> lookup;
    private final long rememberNanos;
    /** By the first eight bytes of the hash. */
    private final ConcurrentHashMap<Long, Remembered<C>> remembered = new ConcurrentHashMap<>();

    public KeyAuth(Lookup<C> lookup, Duration remember) {
        this.lookup = lookup;
        this.rememberNanos = remember.toNanos();
    }

    public RouteHandler guard(CallerHandler<C> handler) {
        return new Guarded<>(this, handler);
    }

    /** A route that asks for a key; the table shows which ones do. */
    record Guarded<C>(KeyAuth<C> auth, CallerHandler<C> handler) implements RouteHandler {
        @Override
        public void handle(Exchange exchange) throws Exception {
            handler.handle(exchange, auth.callerOf(exchange));
        }
    }

    private C callerOf(Exchange exchange) {
        String key = presentedKey(exchange);
        if (key == null) {
            exchange.responseHeader("WWW-Authenticate", "Bearer");
            throw new HttpFailure(new ErrorReply(
                    401,
                    "unauthenticated",
                    "no API key was sent",
                    "",
                    "send the header 'Authorization: Bearer <API key>' (or 'X-API-Key: <API key>')"));
        }
        byte[] hash = sha256(key);
        long slot = slotOf(hash);
        long now = System.nanoTime();
        @Nullable Remembered<C> known = remembered.get(slot);
        if (known != null && known.untilNanos - now > 0 && MessageDigest.isEqual(known.hash, hash)) {
            return known.caller;
        }
        C caller;
        try {
            caller = lookup.byKey(key);
        } catch (RuntimeException e) {
            exchange.responseHeader("WWW-Authenticate", "Bearer error=\"invalid_token\"");
            throw e;
        }
        if (remembered.size() >= MAX_REMEMBERED) {
            remembered.clear();
        }
        remembered.put(slot, new Remembered<>(hash, caller, now + rememberNanos));
        return caller;
    }

    private static @Nullable String presentedKey(Exchange exchange) {
        String authorization = exchange.header("Authorization");
        if (authorization != null && authorization.regionMatches(true, 0, "Bearer ", 0, 7)) {
            String key = authorization.substring(7).strip();
            return key.isEmpty() ? null : key;
        }
        String key = exchange.header("X-API-Key");
        return key == null || key.isBlank() ? null : key.strip();
    }

    private static long slotOf(byte[] hash) {
        long slot = 0;
        for (byte b : Arrays.copyOf(hash, 8)) {
            slot = slot << 8 | (b & 0xff);
        }
        return slot;
    }

    static byte[] sha256(String text) {
        try {
            return MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every JDK has SHA-256", e);
        }
    }
}
