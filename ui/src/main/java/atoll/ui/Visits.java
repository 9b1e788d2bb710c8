package atoll.ui;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.Sessions;
import atoll.http.ErrorReply;
import atoll.http.Exchange;
import atoll.http.Guard;
import atoll.http.HttpFailure;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Optional;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** Knows who visits: by the session cookie, from a page of ours, with the token of the session where something is to change. */
final class Visits extends Guard<Caller> {
    static final String TOKEN_HEADER = "Atoll-Form-Token";
    static final String TOKEN_FIELD = "form_token";
    private static final Set<String> SAFE = Set.of("GET", "HEAD");

    private final Sessions sessions;
    private final HostCheck hosts;
    private final String cookie;

    Visits(Sessions sessions, HostCheck hosts, int port) {
        this.sessions = sessions;
        this.hosts = hosts;
        this.cookie = "atoll_session_" + port;
    }

    /** Whoever is logged in, if somebody is. */
    Optional<Visit> visitor(Exchange exchange) {
        hosts.requireKnownHost(exchange);
        @Nullable String token = exchange.cookie(cookie);
        if (token == null) {
            return Optional.empty();
        }
        try {
            return Optional.of(new Visit(exchange, token, sessions.authenticate(token)));
        } catch (AtollException e) {
            if (e.code() == ErrorCode.UNAUTHENTICATED) {
                return Optional.empty();
            }
            throw e;
        }
    }

    /** For what scripts of our pages call. */
    @Override
    protected Caller callerOf(Exchange exchange, boolean socket) {
        // What a program in a sandbox has written may be in the answer: as a page of its own it can do nothing.
        exchange.responseHeader("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox");
        Visit visit = visitor(exchange).orElseThrow(Visits::loggedOut);
        if (socket) {
            hosts.requireOwnPage(exchange);
        } else if (SAFE.contains(exchange.method())) {
            hosts.refuseOtherSites(exchange);
        } else {
            requireOwn(visit, exchange.header(TOKEN_HEADER));
        }
        return visit.caller();
    }

    /** Requires that this visit may change something: a page of ours with the session's token sent it. */
    void requireOwn(Visit visit, @Nullable String formToken) {
        hosts.requireOwnPage(visit.exchange());
        if (formToken == null || !same(formToken, visit.formToken())) {
            throw new HttpFailure(new ErrorReply(
                    403,
                    "form_expired",
                    "the page that sent this is of another session",
                    "",
                    "load the page again and repeat it"));
        }
    }

    private static boolean same(String one, String other) {
        return MessageDigest.isEqual(one.getBytes(StandardCharsets.UTF_8), other.getBytes(StandardCharsets.UTF_8));
    }

    static HttpFailure loggedOut() {
        return new HttpFailure(
                new ErrorReply(401, "unauthenticated", "you are logged out", "", "log in again at /ui/login"));
    }

    void setCookie(Exchange exchange, Sessions.Opened opened) {
        // No Secure: it would keep plain HTTP on loopback out. A proxy that speaks TLS adds it, and HSTS.
        exchange.responseHeader(
                "Set-Cookie",
                "%s=%s; Path=/ui/; HttpOnly; SameSite=Strict; Max-Age=%d"
                        .formatted(cookie, opened.token(), Sessions.LIFETIME.toSeconds()));
    }

    void removeCookie(Exchange exchange) {
        exchange.responseHeader("Set-Cookie", cookie + "=; Path=/ui/; HttpOnly; SameSite=Strict; Max-Age=0");
    }
}
