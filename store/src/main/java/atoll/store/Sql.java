package atoll.store;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import org.jspecify.annotations.Nullable;

/** One connection with its prepared statements. For one thread at a time. */
final class Sql implements AutoCloseable {
    private final Connection connection;
    private final Map<String, PreparedStatement> statements = new HashMap<>();

    interface Mapping<T> {
        T map(Row row) throws SQLException;
    }

    Sql(Connection connection) {
        this.connection = connection;
    }

    Connection connection() {
        return connection;
    }

    int update(String sql, @Nullable Object... values) throws SQLException {
        PreparedStatement statement = prepared(sql);
        try {
            bind(statement, values);
            return statement.executeUpdate();
        } catch (SQLException e) {
            throw forgotten(sql, e);
        }
    }

    void execute(String sql) throws SQLException {
        PreparedStatement statement = prepared(sql);
        try {
            boolean hasRows = statement.execute();
            assert !hasRows;
        } catch (SQLException e) {
            throw forgotten(sql, e);
        }
    }

    /** Adds to a batch that {@link #runBatch} executes. */
    void addToBatch(String sql, @Nullable Object... values) throws SQLException {
        PreparedStatement statement = prepared(sql);
        bind(statement, values);
        statement.addBatch();
    }

    void runBatch(String sql) throws SQLException {
        PreparedStatement statement = prepared(sql);
        try {
            int[] counts = statement.executeBatch();
            assert counts.length > 0;
        } catch (SQLException e) {
            throw forgotten(sql, e);
        }
    }

    <T> List<T> query(Mapping<T> mapping, String sql, @Nullable Object... values) throws SQLException {
        PreparedStatement statement = prepared(sql);
        bind(statement, values);
        try (ResultSet result = statement.executeQuery()) {
            List<T> rows = new ArrayList<>();
            Row row = new Row(result);
            while (result.next()) {
                rows.add(mapping.map(row));
            }
            return rows;
        } catch (SQLException e) {
            throw forgotten(sql, e);
        }
    }

    <T> Optional<T> first(Mapping<T> mapping, String sql, @Nullable Object... values) throws SQLException {
        List<T> rows = query(mapping, sql, values);
        return rows.isEmpty() ? Optional.empty() : Optional.of(rows.getFirst());
    }

    private PreparedStatement prepared(String sql) throws SQLException {
        PreparedStatement there = statements.get(sql);
        if (there == null) {
            there = connection.prepareStatement(sql);
            statements.put(sql, there);
        }
        return there;
    }

    /** SQLite's driver closes a statement that failed, and a closed one never works again: kept, it would outlive a disk that was full once. */
    private SQLException forgotten(String sql, SQLException failure) {
        PreparedStatement statement = statements.remove(sql);
        if (statement != null) {
            try {
                statement.close();
            } catch (SQLException e) {
                failure.addSuppressed(e);
            }
        }
        return failure;
    }

    private static void bind(PreparedStatement statement, @Nullable Object[] values) throws SQLException {
        for (int i = 0; i < values.length; i++) {
            bind(statement, i + 1, values[i]);
        }
    }

    private static void bind(PreparedStatement statement, int index, @Nullable Object value) throws SQLException {
        switch (value) {
            case null -> statement.setNull(index, Types.NULL);
            case String text -> statement.setString(index, StoreText.encode(text));
            case Long number -> statement.setLong(index, number);
            case Integer number -> statement.setLong(index, number);
            case Boolean flag -> statement.setLong(index, flag ? 1 : 0);
            case Instant time -> statement.setLong(index, Row.micros(time));
            case OptionalInt number when number.isPresent() -> statement.setLong(index, number.getAsInt());
            case OptionalInt _ -> statement.setNull(index, Types.BIGINT);
            case Optional<?> some when some.isPresent() -> bind(statement, index, some.get());
            case Optional<?> _ -> statement.setNull(index, Types.NULL);
            default -> statement.setString(index, StoreText.encode(value.toString()));
        }
    }

    @Override
    public void close() throws SQLException {
        for (PreparedStatement statement : statements.values()) {
            statement.close();
        }
        statements.clear();
        connection.close();
    }
}
