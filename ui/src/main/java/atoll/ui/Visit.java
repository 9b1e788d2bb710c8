package atoll.ui;

import atoll.core.Caller;
import atoll.core.Scope;
import atoll.core.Sessions;
import atoll.http.Exchange;
import org.jspecify.annotations.Nullable;

/** One request of somebody who is logged in. */
public final class Visit {
    private final Exchange exchange;
    private final String token;
    private final Sessions.Session session;

    Visit(Exchange exchange, String token, Sessions.Session session) {
        this.exchange = exchange;
        this.token = token;
        this.session = session;
    }

    /** What every call of core takes: whose key it is decides what is seen and allowed. */
    public Caller caller() {
        return session.caller();
    }

    public String keyName() {
        return session.keyName();
    }

    public String formToken() {
        return session.formToken();
    }

    public boolean mayExecute() {
        return caller().scopes().contains(Scope.EXECUTE);
    }

    public boolean mayAdmin() {
        return caller().scopes().contains(Scope.ADMIN);
    }

    /** A parameter of the path, such as {@code id} of {@code /ui/sandboxes/{id}}. */
    public String path(String name) {
        return exchange.path(name);
    }

    public @Nullable String query(String name) {
        return exchange.query(name);
    }

    /** The query as it is, to be kept in links; empty without one. */
    public String rawQuery() {
        String query = exchange.rawQuery();
        return query == null ? "" : query;
    }

    /** For what is none of the above. */
    public Exchange exchange() {
        return exchange;
    }

    String token() {
        return token;
    }
}
