package atoll.http;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/** All routes of a server. Immutable; {@link Builder#build} refuses a table in which a request could fit two routes. */
public final class RouteTable {
    private final List<Route> routes;
    /** By number of segments. A table has some dozens of routes: scanning a few is cheaper than a tree. */
    private final Compiled[][] bySize;

    private record Compiled(Route route, List<Route.Segment> segments) {}

    sealed interface Match {
        record Found(Route route, Map<String, String> parameters) implements Match {}

        /** The path is known, with these methods. */
        record WrongMethod(String allowed) implements Match {}

        record Unknown() implements Match {}
    }

    private static final Match UNKNOWN = new Match.Unknown();

    private final List<Selection> selections;

    /** Requests that go to a handler by something else than method and path. */
    record Selection(String name, Predicate<Exchange> chosen, RouteHandler handler) {}

    private final List<Fallback> fallbacks;

    /** What answers a {@code GET} below a path where no route does. */
    private record Fallback(String prefix, RouteHandler handler) {}

    private RouteTable(List<Route> routes, List<Selection> selections, List<Fallback> fallbacks) {
        this.routes = routes;
        this.selections = selections;
        this.fallbacks = fallbacks;
        var lists = new TreeMap<Integer, List<Compiled>>();
        for (Route route : routes) {
            List<Route.Segment> segments = route.segments();
            lists.computeIfAbsent(segments.size(), size -> new ArrayList<>()).add(new Compiled(route, segments));
        }
        int longest = lists.isEmpty() ? 0 : lists.lastKey();
        bySize = new Compiled[longest + 1][];
        for (int size = 0; size <= longest; size++) {
            bySize[size] = lists.getOrDefault(size, List.of()).toArray(Compiled[]::new);
        }
    }

    public static Builder builder() {
        return new Builder(new ArrayList<>(), new ArrayList<>(), new ArrayList<>(), "");
    }

    public List<Route> routes() {
        return routes;
    }

    /** The first that takes this request, if one does: they come before all routes. */
    Optional<Selection> select(Exchange exchange) {
        for (Selection selection : selections) {
            if (selection.chosen().test(exchange)) {
                return Optional.of(selection);
            }
        }
        return Optional.empty();
    }

    /** Who answers a request that no route takes; empty where that is nobody's concern. */
    Optional<RouteHandler> otherwise(String method, String rawPath) {
        return fallbacks.stream()
                .filter(fallback -> method.equals("GET") && rawPath.startsWith(fallback.prefix()))
                .map(Fallback::handler)
                .findFirst();
    }

    /** Of the raw path: an encoded slash stays inside its segment. */
    Match find(String method, String rawPath) {
        if (!rawPath.startsWith("/")) {
            return UNKNOWN;
        }
        List<String> parts = Route.split(rawPath);
        if (parts.size() >= bySize.length) {
            return UNKNOWN;
        }
        @Nullable TreeSet<String> allowed = null;
        for (Compiled candidate : bySize[parts.size()]) {
            if (!fits(candidate.segments, parts)) {
                continue;
            }
            String candidateMethod = candidate.route.method();
            if (candidateMethod.equals(method) || (method.equals("HEAD") && candidateMethod.equals("GET"))) {
                return found(candidate, parts);
            }
            allowed = allowed == null ? new TreeSet<>() : allowed;
            allowed.add(candidateMethod);
        }
        return allowed == null ? UNKNOWN : new Match.WrongMethod(String.join(", ", allowed));
    }

    private static boolean fits(List<Route.Segment> segments, List<String> parts) {
        for (int i = 0; i < segments.size(); i++) {
            if (!segments.get(i).fits(parts.get(i))) {
                return false;
            }
        }
        return true;
    }

    private static Match found(Compiled compiled, List<String> parts) {
        Map<String, String> parameters = Map.of();
        for (int i = 0; i < parts.size(); i++) {
            Route.Segment segment = compiled.segments.get(i);
            if (segment.isLiteral()) {
                continue;
            }
            String raw = parts.get(i)
                    .substring(0, parts.get(i).length() - segment.literal().length());
            parameters = parameters.isEmpty() ? new TreeMap<>() : parameters;
            parameters.put(segment.name(), decode(raw));
        }
        return new Match.Found(compiled.route, parameters);
    }

    private static String decode(String raw) {
        if (raw.indexOf('%') < 0) {
            return raw;
        }
        try {
            // Unlike in a form, a plus is a plus in a path.
            return URLDecoder.decode(raw.replace("+", "%2B"), StandardCharsets.UTF_8);
        } catch (IllegalArgumentException _) {
            return raw;
        }
    }

    /** Collects routes. */
    public static final class Builder {
        private final List<Route> routes;
        private final List<Selection> selections;
        private final List<Fallback> fallbacks;
        private final String prefix;

        private Builder(List<Route> routes, List<Selection> selections, List<Fallback> fallbacks, String prefix) {
            this.routes = routes;
            this.selections = selections;
            this.fallbacks = fallbacks;
            this.prefix = prefix;
        }

        /** The same table, with this before the path of each route that is added: for routes that are there twice, behind different guards. */
        public Builder under(String morePrefix) {
            return new Builder(routes, selections, fallbacks, prefix + morePrefix);
        }

        public Builder get(String pattern, RouteHandler handler) {
            return add("GET", pattern, handler);
        }

        public Builder post(String pattern, RouteHandler handler) {
            return add("POST", pattern, handler);
        }

        public Builder put(String pattern, RouteHandler handler) {
            return add("PUT", pattern, handler);
        }

        public Builder delete(String pattern, RouteHandler handler) {
            return add("DELETE", pattern, handler);
        }

        public Builder add(String method, String pattern, RouteHandler handler) {
            routes.add(new Route(
                    method,
                    prefix + pattern,
                    handler instanceof Guard.Guarded<?> || handler instanceof Guard.GuardedSocket<?>,
                    handler));
            return this;
        }

        /**
         * Gives a handler all requests that {@code chosen} takes, whatever their method and path: those for a host or with a header of their own. Selections are
         * asked in the order in which they were added, before any route.
         *
         * @param name stands for the route in metrics
         */
        public Builder select(String name, Predicate<Exchange> chosen, RouteHandler handler) {
            selections.add(new Selection(name, chosen, handler));
            return this;
        }

        /** Gives a handler every {@code GET} below {@code path} that no route takes, in the place of the error that is JSON. */
        public Builder otherwise(String path, RouteHandler handler) {
            fallbacks.add(new Fallback(prefix + path, handler));
            return this;
        }

        public RouteTable build() {
            for (int i = 0; i < routes.size(); i++) {
                for (int j = 0; j < i; j++) {
                    if (routes.get(i).overlaps(routes.get(j))) {
                        throw new IllegalStateException("routes overlap: %s %s and %s"
                                .formatted(
                                        routes.get(i).method(),
                                        routes.get(j).pattern(),
                                        routes.get(i).pattern()));
                    }
                }
            }
            return new RouteTable(List.copyOf(routes), List.copyOf(selections), List.copyOf(fallbacks));
        }
    }
}
