package atoll.store;

import atoll.core.store.Store;
import atoll.core.testing.StoreContract;
import java.sql.SQLException;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

class PostgresqlStoreTest extends StoreContract {
    private static @Nullable PostgresqlServer server;

    @BeforeAll
    static void startServer() {
        server = PostgresqlServer.start();
    }

    @AfterAll
    static void stopServer() {
        if (server != null) {
            server.close();
        }
    }

    @Override
    protected Store open() {
        PostgresqlServer running = server;
        if (running == null) {
            throw new IllegalStateException("the server was not started");
        }
        try {
            String url = running.freshDatabase();
            return SqlStore.postgresql(url, PostgresqlServer.USER, "");
        } catch (SQLException e) {
            throw new AssertionError(e);
        }
    }
}
