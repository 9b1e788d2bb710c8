package atoll.store;

import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;

/** The few things that the databases do differently. */
enum Dialect {
    SQLITE {
        @Override
        void prepare(Connection writer, boolean durable) {
            // NORMAL, set when the connection is made, for all: a commit survives the death of the process, and no
            // commit
            // waits for the disk. After a power cut the last ones may be missing, but then the boxes are gone as well,
            // and a sandbox whose deletion was lost is found without its box and ends.
        }

        @Override
        String begin() {
            return "begin immediate";
        }

        @Override
        boolean isDiskFull(SQLException e) {
            return (e.getErrorCode() & 0xff) == SQLITE_FULL;
        }
    },
    POSTGRESQL {
        @Override
        void prepare(Connection writer, boolean durable) throws SQLException {
            execute(writer, durable ? "set synchronous_commit = on" : "set synchronous_commit = off");
        }

        @Override
        String begin() {
            return "begin";
        }

        @Override
        boolean isDiskFull(SQLException e) {
            return "53100".equals(e.getSQLState());
        }
    };

    private static final int SQLITE_FULL = 13;

    /** Before a transaction, when it differs from the last: whether its commit must survive when it returns. */
    abstract void prepare(Connection writer, boolean durable) throws SQLException;

    abstract String begin();

    /** Whether that is why a write failed. */
    abstract boolean isDiskFull(SQLException e);

    static void execute(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            boolean isQuery = statement.execute(sql);
            assert !isQuery || sql.startsWith("pragma");
        }
    }
}
