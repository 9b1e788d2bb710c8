package atoll.http;

import java.util.function.Consumer;

/**
 * Lets only requests of a known caller through.
 *
 * @param <C> what is known of a caller
 */
public abstract class Guard<C> {
    /** A handler that is told who calls. */
    @FunctionalInterface
    public interface CallerHandler<C> {
        void handle(Exchange exchange, C caller) throws Exception;
    }

    /** Opens a WebSocket for a caller: looks at the request and says what serves it, or throws what is answered instead. */
    @FunctionalInterface
    public interface CallerSocket<C> {
        WebSocketHandler open(Exchange exchange, C caller) throws Exception;
    }

    /**
     * Who sent the request; throws what is answered instead.
     *
     * @param socket whether it is to become a WebSocket
     */
    protected abstract C callerOf(Exchange exchange, boolean socket);

    /** The same, that also asks whether the caller may: it throws what is answered instead. Asked before anything else of the request is read. */
    public final Guard<C> and(Consumer<C> mayCall) {
        return new Narrowed<>(this, mayCall);
    }

    private static final class Narrowed<C> extends Guard<C> {
        private final Guard<C> wide;
        private final Consumer<C> mayCall;

        Narrowed(Guard<C> wide, Consumer<C> mayCall) {
            this.wide = wide;
            this.mayCall = mayCall;
        }

        @Override
        protected C callerOf(Exchange exchange, boolean socket) {
            C caller = wide.callerOf(exchange, socket);
            mayCall.accept(caller);
            return caller;
        }
    }

    /** The same, that then also looks at the request; what the check throws is answered instead. */
    public final Guard<C> checking(Consumer<Exchange> check) {
        Guard<C> first = this;
        return new Guard<>() {
            @Override
            protected C callerOf(Exchange exchange, boolean socket) {
                C caller = first.callerOf(exchange, socket);
                check.accept(exchange);
                return caller;
            }
        };
    }

    public final RouteHandler guard(CallerHandler<C> handler) {
        return new Guarded<>(this, handler);
    }

    /** A WebSocket that asks who calls before it is one. */
    public final RouteHandler guardSocket(CallerSocket<C> socket) {
        return new GuardedSocket<>(this, socket);
    }

    record GuardedSocket<C>(Guard<C> auth, CallerSocket<C> socket) implements RouteHandler {
        @Override
        public void handle(Exchange exchange) throws Exception {
            C caller = auth.callerOf(exchange, true);
            if (!exchange.wantsWebSocket()) {
                exchange.responseHeader("Upgrade", "websocket");
                throw WebSockets.notAnUpgrade();
            }
            exchange.upgrade(socket.open(exchange, caller));
        }
    }

    /** A route that asks who calls; the table shows which ones do. */
    record Guarded<C>(Guard<C> auth, CallerHandler<C> handler) implements RouteHandler {
        @Override
        public void handle(Exchange exchange) throws Exception {
            handler.handle(exchange, auth.callerOf(exchange, false));
        }
    }
}
