package atoll.http;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;

/**
 * One method and path of the route table. A path is made of literal segments, parameters ({@code {id}}: a segment without a colon) and parameters
 * with a custom method ({@code {id}:interrupt}); so two different routes never fit the same request.
 */
public record Route(String method, String pattern, boolean guarded, RouteHandler handler) {

    public Route {
        Objects.requireNonNull(handler, "handler");
        if (!pattern.startsWith("/")) {
            throw new IllegalArgumentException("pattern: %s (expected: starts with /)".formatted(pattern));
        }
    }

    /** Whether it is served by WebSocket. */
    public boolean isWebSocket() {
        return handler instanceof Guard.GuardedSocket<?>;
    }

    /** One segment of a pattern: a literal ({@code name} empty) or a parameter, with the literal that follows it in the segment. */
    record Segment(String name, String literal) {
        boolean isLiteral() {
            return name.isEmpty();
        }

        boolean fits(String text) {
            if (isLiteral()) {
                return literal.equals(text);
            }
            int end = text.length() - literal.length();
            return end > 0 && text.endsWith(literal) && text.lastIndexOf(':', end - 1) < 0;
        }

        boolean mayOverlap(Segment other) {
            if (isLiteral() && other.isLiteral()) {
                return literal.equals(other.literal);
            }
            if (isLiteral()) {
                return other.fits(literal);
            }
            return other.isLiteral() ? fits(other.literal) : literal.equals(other.literal);
        }
    }

    List<Segment> segments() {
        var segments = new ArrayList<Segment>();
        var names = new HashSet<String>();
        for (String text : split(pattern)) {
            int close = text.indexOf('}');
            if (!text.startsWith("{")) {
                if (close >= 0 || text.indexOf('{') >= 0) {
                    throw new IllegalArgumentException(
                            "pattern: %s (expected: a parameter at the start of its segment)".formatted(pattern));
                }
                segments.add(new Segment("", text));
                continue;
            }
            String suffix = text.substring(close + 1);
            if (close < 2 || !(suffix.isEmpty() || suffix.startsWith(":"))) {
                throw new IllegalArgumentException(
                        "pattern: %s (expected: {name} or {name}:method)".formatted(pattern));
            }
            String name = text.substring(1, close);
            if (!names.add(name)) {
                throw new IllegalArgumentException(
                        "pattern: %s (expected: each parameter once, %s is there twice)".formatted(pattern, name));
            }
            segments.add(new Segment(name, suffix));
        }
        return List.copyOf(segments);
    }

    /** Whether some path fits both. */
    boolean overlaps(Route other) {
        List<Segment> mine = segments();
        List<Segment> theirs = other.segments();
        if (!method.equals(other.method) || mine.size() != theirs.size()) {
            return false;
        }
        for (int i = 0; i < mine.size(); i++) {
            if (!mine.get(i).mayOverlap(theirs.get(i))) {
                return false;
            }
        }
        return true;
    }

    /** {@code "/a/b"} → {@code ["a", "b"]}; {@code "/"} → {@code [""]}; undecoded. */
    static List<String> split(String path) {
        var parts = new ArrayList<String>(5);
        int start = 1;
        for (int slash = path.indexOf('/', 1); slash >= 0; slash = path.indexOf('/', start)) {
            parts.add(path.substring(start, slash));
            start = slash + 1;
        }
        parts.add(path.substring(start));
        return parts;
    }
}
