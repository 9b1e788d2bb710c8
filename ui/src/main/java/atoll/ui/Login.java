package atoll.ui;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.Keys;
import atoll.core.Sessions;
import atoll.http.ErrorReply;
import atoll.http.Exchange;
import atoll.http.Form;
import atoll.http.HttpFailure;
import atoll.http.KeyAuth;
import java.io.IOException;
import java.time.Duration;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** Logging in, by a one-time link or an API key, and out. */
public final class Login {
    private final Sessions sessions;
    private final Visits visits;
    private final HostCheck hosts;
    private final Site site;
    private final LoginLimit limit = new LoginLimit(System::nanoTime);

    Login(Sessions sessions, Visits visits, HostCheck hosts, Site site) {
        this.sessions = sessions;
        this.visits = visits;
        this.hosts = hosts;
        this.site = site;
    }

    /** What the form shows. */
    public record Model(String code, String next, String problem) {}

    record Link(String path, String expiresAt) {}

    void addTo(Keys keys) {
        site.raw("GET", "/ui/login", exchange -> site.answer(exchange, () -> form(exchange)));
        site.raw("POST", "/ui/login", exchange -> site.answer(exchange, () -> login(exchange)));
        site.action("/ui/logout", (visit, _) -> {
            sessions.close(visit.token());
            visits.removeCookie(visit.exchange());
            return Outcome.to("/ui/login");
        });
        // For the launcher, which has a key and no cookie.
        site.raw("POST", "/ui/login-links", new KeyAuth<>(keys::authenticate).guard((exchange, caller) -> {
                    Sessions.LoginCode made = sessions.loginCode(caller);
                    exchange.json(
                            201,
                            new Link(
                                    "/ui/login?code=" + made.code(),
                                    made.expiresAt().toString()));
                }));
    }

    private void form(Exchange exchange) throws IOException, InterruptedException {
        if (visits.visitor(exchange).isPresent() && exchange.query("code") == null) {
            Site.redirect(exchange, next(exchange.query("next")));
            return;
        }
        // Looking at the link does not use it up: programs that show previews look too. The page sends it by a script,
        // or by a click.
        @Nullable String code = exchange.query("code");
        show(exchange, 200, new Model(code == null ? "" : code, next(exchange.query("next")), ""));
    }

    private void show(Exchange exchange, int status, Model model) throws IOException, InterruptedException {
        site.show(exchange, status, View.apart("Log in", "login").with("model", model), Optional.empty());
    }

    /** A path of ours, whatever was asked for. */
    private static String next(@Nullable String wanted) {
        if (wanted == null || !wanted.startsWith("/ui/")) {
            return "/ui/";
        }
        return wanted.chars().allMatch(c -> c > ' ' && c < 127 && c != '\\') ? wanted : "/ui/";
    }

    private void login(Exchange exchange) throws IOException, InterruptedException {
        hosts.requireKnownHost(exchange);
        hosts.requireOwnPage(exchange);
        Form form = exchange.readForm();
        String next = next(form.text("next"));
        Duration wait = limit.wait(exchange.remoteAddress());
        if (!wait.isZero()) {
            exchange.responseHeader("Retry-After", Long.toString(wait.toSeconds() + 1));
            throw new HttpFailure(new ErrorReply(
                    429,
                    "too_many_requests",
                    "too many logins failed",
                    "",
                    "wait %d s and try again".formatted(wait.toSeconds() + 1)));
        }
        Sessions.Opened opened;
        try {
            Optional<String> code = form.given("code");
            opened = code.isPresent()
                    ? sessions.redeem(code.get())
                    : sessions.open(form.text("key").strip());
        } catch (AtollException e) {
            if (e.code() != ErrorCode.UNAUTHENTICATED) {
                throw e;
            }
            limit.failed(exchange.remoteAddress());
            show(exchange, 401, new Model("", next, e.message() + " " + e.reason()));
            return;
        }
        visits.setCookie(exchange, opened);
        Site.redirect(exchange, next);
    }
}
