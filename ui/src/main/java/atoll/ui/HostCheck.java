package atoll.ui;

import atoll.http.ErrorReply;
import atoll.http.Exchange;
import atoll.http.HttpFailure;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * Where requests may come from. A name that is not ours may be made to point here by whoever owns it (DNS rebinding), and then a page of theirs would have our
 * origin; an address can't. A request that changes something must come from one of our own pages.
 */
final class HostCheck {
    private static final Set<String> LOOPBACK = Set.of("localhost", "127.0.0.1", "[::1]");
    private static final Pattern ADDRESS = Pattern.compile("[0-9]{1,3}(\\.[0-9]{1,3}){3}|\\[[0-9a-fA-F:.]+]");

    private final UiSettings settings;

    HostCheck(UiSettings settings) {
        this.settings = settings;
    }

    void requireKnownHost(Exchange exchange) {
        String host = withoutPort(exchange.authority());
        if (LOOPBACK.contains(host)
                || settings.hosts().contains(host)
                || (settings.anyAddress() && ADDRESS.matcher(host).matches())) {
            return;
        }
        throw new HttpFailure(new ErrorReply(
                421,
                "unknown_host",
                "the dashboard does not answer to the name '%s'".formatted(shown(host)),
                "a page of another site could reach it under a name that is not known here",
                "open it as http://localhost:%d/ui/, or start the server with --ui-hosts NAME"
                        .formatted(settings.port())));
    }

    private static String withoutPort(String authority) {
        String lower = authority.toLowerCase(Locale.ROOT);
        int colon = lower.lastIndexOf(':');
        return colon > lower.lastIndexOf(']') ? lower.substring(0, colon) : lower;
    }

    private static String shown(String host) {
        return host.length() > 100 ? host.substring(0, 100) + "…" : host;
    }

    /** Requires that a page of ours has sent this: a browser says so, in one or both of two headers. */
    void requireOwnPage(Exchange exchange) {
        @Nullable String site = exchange.header("Sec-Fetch-Site");
        @Nullable String origin = exchange.header("Origin");
        boolean told = site != null || origin != null;
        boolean own =
                (site == null || site.equals("same-origin")) && (origin == null || isOwn(origin, exchange.authority()));
        if (!told || !own) {
            throw otherSite();
        }
    }

    /** Of what is only read: no other site's page may ask for it, but who typed the address may, and what is no browser. */
    void refuseOtherSites(Exchange exchange) {
        @Nullable String site = exchange.header("Sec-Fetch-Site");
        if (site != null && !site.equals("same-origin") && !site.equals("none")) {
            throw otherSite();
        }
    }

    private static boolean isOwn(String origin, String authority) {
        int scheme = origin.indexOf("://");
        return scheme > 0 && origin.substring(scheme + 3).equalsIgnoreCase(authority);
    }

    private static HttpFailure otherSite() {
        return new HttpFailure(new ErrorReply(
                403,
                "cross_site",
                "this request did not come from a page of this dashboard",
                "",
                "use the dashboard's own pages; programs call /v1 with an API key"));
    }
}
