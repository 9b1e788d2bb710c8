package atoll.core.store;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.ProjectId;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Instant;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/** Requests that callers may send again with a key: one at a time per key, and the same request only. */
public final class OnceByKey {
    private static final int MAX_KEY_CHARS = 255;

    /** Those under way, so that a second one waits for the first. */
    private final Map<String, CompletableFuture<Void>> underWay = new ConcurrentHashMap<>();

    /** Fails for what can be no key. */
    public static void check(String key) {
        if (key.isBlank() || key.length() > MAX_KEY_CHARS) {
            throw AtollException.invalid(
                    "idempotency key of " + key.length() + " characters (expected: 1 to " + MAX_KEY_CHARS + ")",
                    "Use a random id for each request.");
        }
    }

    /** Waits for those with the same key that came before; the turn lasts until it is closed. */
    public Turn begin(ProjectId project, String key) {
        String inProject = project + "\n" + key;
        CompletableFuture<Void> mine = new CompletableFuture<>();
        CompletableFuture<Void> first = underWay.putIfAbsent(inProject, mine);
        while (first != null) {
            first.join();
            first = underWay.putIfAbsent(inProject, mine);
        }
        return new Turn(project, key, () -> {
            underWay.remove(inProject);
            mine.complete(null);
        });
    }

    /** One request's turn. */
    public static final class Turn implements AutoCloseable {
        private final ProjectId project;
        private final String key;
        private final Runnable end;

        private Turn(ProjectId project, String key, Runnable end) {
            this.project = project;
            this.key = key;
            this.end = end;
        }

        /** The id that the first request with this key gave to what it makes; fails if that was another request. */
        public String claim(Store store, String operation, List<?> request, String resultId, Instant now) {
            IdempotencyClaim claim = new IdempotencyClaim(operation, key, hash(request), resultId);
            IdempotencyClaim there = store.claim(project, claim, now);
            if (!there.requestHash().equals(claim.requestHash())) {
                throw new AtollException(
                        ErrorCode.CONFLICT,
                        "idempotency key: it came with another request before (expected: the same request)",
                        "A key belongs to the first request that it came with.",
                        "Use a new key for a new request.");
            }
            return there.resultId();
        }

        @Override
        public void close() {
            end.run();
        }
    }

    private static String hash(List<?> request) {
        // Lengths keep the parts apart: no two requests have the same text.
        StringBuilder text = new StringBuilder();
        for (Object part : request) {
            String shown = part.toString();
            text.append(shown.length()).append(':').append(shown);
        }
        try {
            byte[] digest =
                    MessageDigest.getInstance("SHA-256").digest(text.toString().getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(digest);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }
}
