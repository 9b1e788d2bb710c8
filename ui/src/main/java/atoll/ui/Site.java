package atoll.ui;

import atoll.core.stats.Changes;
import atoll.core.stats.Changes.Topic;
import atoll.http.ErrorMapping;
import atoll.http.ErrorReply;
import atoll.http.EventStream;
import atoll.http.Exchange;
import atoll.http.Form;
import atoll.http.HttpFailure;
import atoll.http.RouteHandler;
import atoll.http.RouteTable;
import gg.jte.ContentType;
import gg.jte.TemplateEngine;
import gg.jte.output.StringOutput;
import java.io.IOException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Where pages put themselves: every route that is added here asks who visits, every action for the session's token, and everything is answered with the headers that
 * keep foreign scripts out.
 */
public final class Site {
    private static final Logger LOG = LoggerFactory.getLogger(Site.class);
    private static final long LIVE_PERIOD_MILLIS = 500;
    private static final int QUIET_PERIODS = 30;
    /** What is counted on the side may be a little newer than what was told of it. */
    private static final int LOOK_ANYWAY = 10;

    private static final String HTML = "text/html; charset=utf-8";
    private static final String SCRIPT_HEADER = "Atoll-Script";

    /** Shows a page, or a piece of one. */
    @FunctionalInterface
    public interface Shown {
        View show(Visit visit) throws Exception;
    }

    /** Does something. What it throws is shown to the visitor. */
    @FunctionalInterface
    public interface Action {
        Outcome run(Visit visit, Form form) throws Exception;
    }

    /** Says how a page's live regions are now: views by the regions' names. Asked twice a second for each page that is open, so it must be cheap. */
    @FunctionalInterface
    public interface Live {
        Map<String, View> now(Visit visit) throws Exception;
    }

    private final RouteTable.Builder routes;
    private final Visits visits;
    private final ErrorMapping errors;
    private final String version;
    private final TemplateEngine templates =
            TemplateEngine.createPrecompiled(null, ContentType.Html, Site.class.getClassLoader(), "atoll.ui.templates");
    private final List<Nav> nav = new ArrayList<>();
    private final Messages messages = new Messages();
    private final Changes changes;
    private final CountDownLatch closed = new CountDownLatch(1);

    Site(RouteTable.Builder routes, Visits visits, Changes changes, ErrorMapping errors, String version) {
        this.changes = changes;
        this.routes = routes;
        this.visits = visits;
        this.errors = errors;
        this.version = version;
    }

    /** A page at {@code GET path}. With the path of a {@link Nav} it is what that entry leads to. */
    public Site page(String path, Shown page) {
        for (Nav entry : Nav.values()) {
            if (entry.path().equals(path)) {
                nav.add(entry);
            }
        }
        routes.get(
                path,
                exchange -> answer(exchange, () -> {
                    Optional<Visit> visit = visits.visitor(exchange);
                    if (visit.isEmpty()) {
                        redirect(
                                exchange,
                                "/ui/login?next=" + URLEncoder.encode(address(exchange), StandardCharsets.UTF_8));
                        return;
                    }
                    show(exchange, 200, page.show(visit.get()), visit);
                }));
        return this;
    }

    private static String address(Exchange exchange) {
        return exchange.rawPath() + (exchange.rawQuery() == null ? "" : "?" + exchange.rawQuery());
    }

    /** A piece of a page at {@code GET path}, for scripts and htmx. */
    public Site fragment(String path, Shown piece) {
        routes.get(path, exchange -> {
            Visit visit = visits.visitor(exchange).orElseThrow(Visits::loggedOut);
            show(exchange, 200, piece.show(visit), Optional.of(visit));
        });
        return this;
    }

    /** What a form does, at {@code POST path}; the form must carry the session's token. */
    public Site action(String path, Action action) {
        routes.post(
                path,
                exchange -> answer(exchange, () -> {
                    Visit visit = visits.visitor(exchange).orElseThrow(Visits::loggedOut);
                    Form form = exchange.readForm();
                    visits.requireOwn(visit, form.text(Visits.TOKEN_FIELD));
                    arrive(exchange, visit, action.run(visit, form));
                }));
        return this;
    }

    /** A stream of live regions at {@code GET path}. Each goes out when it has changed, twice a second at most. */
    public Site live(String path, Live source) {
        return live(path, Set.of(), source);
    }

    /** The same of what changes with these topics alone, and is not looked at before. */
    public Site live(String path, Set<Topic> topics, Live source) {
        routes.get(path, exchange -> {
            Visit visit = visits.visitor(exchange).orElseThrow(Visits::loggedOut);
            stream(exchange, visit, topics, source);
        });
        return this;
    }

    private void arrive(Exchange exchange, Visit visit, Outcome outcome) throws IOException, InterruptedException {
        if (exchange.header(SCRIPT_HEADER) != null) {
            exchange.json(200, outcome);
            return;
        }
        if (!outcome.message().isEmpty()) {
            messages.put(visit.formToken(), outcome.message());
        }
        redirect(exchange, outcome.path());
    }

    static void redirect(Exchange exchange, String path) throws IOException, InterruptedException {
        exchange.responseHeader("Location", path);
        exchange.empty(303);
    }

    /** Answers for all addresses below {@code /ui/} where nothing is. */
    void nothing(Exchange exchange) throws Exception {
        String path = exchange.rawPath();
        var missing = new HttpFailure(new ErrorReply(
                404,
                "not_found",
                "there is nothing at " + (path.length() > 200 ? path.substring(0, 200) + "…" : path),
                "",
                "look at the address again, or choose a page above"));
        if (path.startsWith("/ui/v1/") || path.startsWith("/ui/static/")) {
            throw missing;
        }
        answer(exchange, () -> {
            throw missing;
        });
    }

    /** Any route below {@code /ui/} that is none of the above; it looks after who visits itself. */
    void raw(String method, String path, RouteHandler handler) {
        routes.add(method, path, handler);
    }

    /** Answers a person: what goes wrong is a page too, unless a script has asked. */
    void answer(Exchange exchange, Work work) throws Exception {
        try {
            work.run();
        } catch (RuntimeException e) {
            if (exchange.answered() || exchange.header(SCRIPT_HEADER) != null) {
                throw e;
            }
            ErrorReply reply = reply(e).orElseThrow(() -> e);
            if (reply.status() >= 500) {
                LOG.error("{} {} failed", exchange.requestId(), exchange.method(), e);
            }
            Optional<Visit> visit = reply.code().equals("unknown_host") ? Optional.empty() : visits.visitor(exchange);
            show(exchange, reply.status(), View.apart("Error", "error").with("error", reply), visit);
        }
    }

    @FunctionalInterface
    interface Work {
        void run() throws Exception;
    }

    Optional<ErrorReply> reply(RuntimeException failure) {
        return failure instanceof HttpFailure known ? Optional.of(known.reply()) : errors.map(failure);
    }

    void show(Exchange exchange, int status, View view, Optional<Visit> visit)
            throws IOException, InterruptedException {
        String html = render(view, visit);
        exchange.responseHeader("Content-Security-Policy", policy(view));
        // With no-referrer browsers send forms with "Origin: null", which nobody can tell from another site's.
        exchange.responseHeader("Referrer-Policy", "same-origin");
        exchange.responseHeader("Cross-Origin-Opener-Policy", "same-origin");
        exchange.responseHeader("Cross-Origin-Resource-Policy", "same-origin");
        exchange.bytes(status, HTML, html.getBytes(StandardCharsets.UTF_8));
    }

    private static String policy(View view) {
        return "default-src 'none'; script-src 'self'; style-src 'self'"
                + (view.inlineStyles() ? " 'unsafe-inline'" : "")
                + "; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; frame-src 'self';"
                + " form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    }

    String render(View view, Optional<Visit> visit) {
        Map<String, Object> parameters = new HashMap<>(view.parameters());
        boolean wantsFrame =
                templates.getParamInfo(view.template() + ".jte").keySet().contains("frame");
        if (wantsFrame) {
            Optional<String> message = visit.flatMap(known -> messages.take(known.formToken()));
            parameters.put("frame", view.frame(visit, List.copyOf(nav), message, version));
        }
        var output = new StringOutput(16 << 10);
        templates.render(view.template() + ".jte", parameters, output);
        return output.toString();
    }

    private void stream(Exchange exchange, Visit first, Set<Topic> topics, Live source) throws Exception {
        EventStream events = exchange.events();
        Map<String, String> sent = new LinkedHashMap<>();
        Visit visit = first;
        int quiet = 0;
        Changes.State seen = Changes.State.NONE;
        do {
            boolean changed = false;
            Changes.State now = changes.now();
            if (quiet % LOOK_ANYWAY == 0 || topics.isEmpty() || !Collections.disjoint(now.since(seen), topics)) {
                seen = now;
                for (Map.Entry<String, View> region : source.now(visit).entrySet()) {
                    String html = render(region.getValue(), Optional.of(visit));
                    if (!html.equals(sent.put(region.getKey(), html))) {
                        send(events, region.getKey(), html);
                        changed = true;
                    }
                }
            }
            quiet = changed ? 0 : quiet + 1;
            if (changed) {
                events.flush();
            } else if (quiet % QUIET_PERIODS == 0) {
                events.keepAlive();
            }
            if (closed.await(LIVE_PERIOD_MILLIS, TimeUnit.MILLISECONDS)) {
                break;
            }
            Optional<Visit> still = visits.visitor(exchange);
            if (still.isEmpty()) {
                send(events, "logged-out", "");
                break;
            }
            visit = still.get();
        } while (true);
        events.finish();
    }

    private static void send(EventStream events, String name, String html) throws IOException, InterruptedException {
        events.begin(EventStream.ascii(name));
        events.raw(html.replace("\r", "").replace("\n", "\ndata: ").getBytes(StandardCharsets.UTF_8));
        events.end();
    }

    /** Ends all streams, so that the server need not wait for them. */
    void close() {
        closed.countDown();
    }
}
