package atoll.store;

import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;

/** The few things that the databases do differently. */
enum Dialect {
    SQLITE {
        @Override
        void prepare(Connection writer, boolean durable) throws SQLException {
            // NORMAL survives the death of the process, FULL that of the machine. It can't be changed inside a
            // transaction.
            execute(writer, durable ? "pragma synchronous = full" : "pragma synchronous = normal");
        }

        @Override
        void begin(Connection writer) throws SQLException {
            execute(writer, "begin immediate");
        }
    },
    POSTGRESQL {
        @Override
        void prepare(Connection writer, boolean durable) throws SQLException {
            execute(writer, durable ? "set synchronous_commit = on" : "set synchronous_commit = off");
        }

        @Override
        void begin(Connection writer) throws SQLException {
            execute(writer, "begin");
        }
    };

    /** Before a transaction: whether its commit has to be on disk when it returns. */
    abstract void prepare(Connection writer, boolean durable) throws SQLException;

    abstract void begin(Connection writer) throws SQLException;

    static void execute(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            boolean isQuery = statement.execute(sql);
            assert !isQuery || sql.startsWith("pragma");
        }
    }
}
