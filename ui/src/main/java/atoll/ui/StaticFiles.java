package atoll.ui;

import atoll.http.ErrorReply;
import atoll.http.Exchange;
import atoll.http.HttpFailure;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Scripts and styles out of the jar. Their address holds a hash of what is in them, so that browsers may keep them for good. */
final class StaticFiles {
    private static final Pattern NAME = Pattern.compile("(vendor/)?[a-z0-9][a-z0-9_-]*(\\.[a-z0-9]+)+");
    private static final Map<String, String> TYPES = Map.of(
            "css", "text/css; charset=utf-8",
            "js", "text/javascript; charset=utf-8",
            "svg", "image/svg+xml",
            "txt", "text/plain; charset=utf-8");
    private static final Map<String, StaticFile> FILES = new ConcurrentHashMap<>();

    private static final class StaticFile {
        final byte[] content;
        final String type;
        final String hash;

        StaticFile(byte[] content, String type) {
            this.content = content;
            this.type = type;
            this.hash = StaticFiles.hash(content);
        }
    }

    private StaticFiles() {}

    static String address(String name) {
        StaticFile file = file(name);
        if (file == null) {
            throw new IllegalArgumentException("static file: %s (expected: one in static/)".formatted(name));
        }
        return "/ui/static/" + name + "?v=" + file.hash;
    }

    static void serve(Exchange exchange, String name) throws IOException, InterruptedException {
        StaticFile file = file(name);
        if (file == null) {
            throw new HttpFailure(new ErrorReply(404, "not_found", "there is no such file", "", ""));
        }
        boolean kept = file.hash.equals(exchange.query("v"));
        exchange.responseHeader("Cache-Control", kept ? "public, max-age=31536000, immutable" : "no-cache");
        exchange.responseHeader("Cross-Origin-Resource-Policy", "same-origin");
        exchange.bytes(200, file.type, file.content);
    }

    private static @Nullable StaticFile file(String name) {
        StaticFile known = FILES.get(name);
        if (known != null || !NAME.matcher(name).matches()) {
            return known;
        }
        @Nullable String type = TYPES.get(name.substring(name.lastIndexOf('.') + 1));
        try (InputStream in = StaticFiles.class.getResourceAsStream("static/" + name)) {
            if (in == null || type == null) {
                return null;
            }
            byte[] content = in.readAllBytes();
            StaticFile read = new StaticFile(content, type);
            FILES.put(name, read);
            return read;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static String hash(byte[] content) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(content), 0, 6);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }
}
