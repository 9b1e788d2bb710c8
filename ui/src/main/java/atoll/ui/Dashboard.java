package atoll.ui;

import atoll.core.Atoll;
import atoll.core.Caller;
import atoll.http.ErrorMapping;
import atoll.http.Guard;
import atoll.http.RouteTable;

/** All of the dashboard. */
public final class Dashboard implements AutoCloseable {
    private final Visits visits;
    private final Site site;

    /** Adds its routes, all below {@code /ui}. */
    public Dashboard(RouteTable.Builder routes, Atoll atoll, UiSettings settings, ErrorMapping errors) {
        var hosts = new HostCheck(settings);
        visits = new Visits(atoll.sessions(), hosts, settings.port());
        site = new Site(routes, visits, atoll.stats().changes(), errors, settings.version());
        new Login(atoll.sessions(), visits, hosts, site).addTo(atoll.keys());
        site.raw("GET", "/ui", exchange -> Site.redirect(exchange, "/ui/"));
        site.raw("GET", "/ui/static/{file}", exchange -> StaticFiles.serve(exchange, exchange.path("file")));
        site.raw(
                "GET",
                "/ui/static/vendor/{file}",
                exchange -> StaticFiles.serve(exchange, "vendor/" + exchange.path("file")));
        routes.otherwise("/ui/", site::nothing);
        for (Page page : Pages.all(atoll, settings)) {
            page.addTo(site);
        }
    }

    /** Lets scripts of the dashboard's pages through to what else is served below {@code /ui}. */
    public Guard<Caller> guard() {
        return visits;
    }

    /** Ends what pages follow live; to be called before the HTTP server is closed. */
    @Override
    public void close() {
        site.close();
    }
}
