package atoll.store;

import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Optional;
import java.util.OptionalInt;

/** A row of a result, read by column name, with SQL's nulls turned into empty values. */
record Row(ResultSet result) {
    String text(String column) throws SQLException {
        return StoreText.decode(result.getString(column));
    }

    Optional<String> optionalText(String column) throws SQLException {
        String text = result.getString(column);
        return result.wasNull() ? Optional.empty() : Optional.of(StoreText.decode(text));
    }

    long number(String column) throws SQLException {
        return result.getLong(column);
    }

    Optional<Long> optionalNumber(String column) throws SQLException {
        long number = result.getLong(column);
        return result.wasNull() ? Optional.empty() : Optional.of(number);
    }

    OptionalInt optionalInt(String column) throws SQLException {
        int number = result.getInt(column);
        return result.wasNull() ? OptionalInt.empty() : OptionalInt.of(number);
    }

    boolean flag(String column) throws SQLException {
        return result.getLong(column) != 0;
    }

    Instant time(String column) throws SQLException {
        return Instant.EPOCH.plus(result.getLong(column), ChronoUnit.MICROS);
    }

    Optional<Instant> optionalTime(String column) throws SQLException {
        long micros = result.getLong(column);
        return result.wasNull() ? Optional.empty() : Optional.of(Instant.EPOCH.plus(micros, ChronoUnit.MICROS));
    }

    static long micros(Instant time) {
        return ChronoUnit.MICROS.between(Instant.EPOCH, time);
    }
}
