package atoll.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class WriterTest {
    private static final int MIB = 1 << 20;

    /** Makes the database larger once: as the disk is when a file has gone. */
    private static final class Once implements Reserve {
        private final Connection connection;
        private int times;
        private int fillings;

        Once(Connection connection) {
            this.connection = connection;
        }

        @Override
        public boolean giveUp() {
            try {
                Dialect.execute(connection, "pragma max_page_count = " + 2 * MIB / 4096);
            } catch (SQLException e) {
                throw new IllegalStateException(e);
            }
            return times++ == 0;
        }

        @Override
        public boolean fill() {
            fillings++;
            return times == 0;
        }
    }

    @Test
    void on_a_full_disk_the_reserve_is_given_up_once_and_the_write_succeeds() throws SQLException {
        Connection connection = DriverManager.getConnection("jdbc:sqlite::memory:");
        Sql sql = new Sql(connection);
        sql.execute("create table t (text text)");
        Dialect.execute(connection, "pragma max_page_count = 20");
        Once reserve = new Once(connection);
        try (Writer writer = new Writer(Dialect.SQLITE, sql, reserve)) {
            writer.start();
            String large = "x".repeat(MIB);
            int inserted = writer.write(to -> to.update("insert into t (text) values (?)", large));
            assertThat(inserted).isEqualTo(1);
            assertThat(reserve.times).isEqualTo(1);
            assertThatThrownBy(() -> writer.write(to -> to.update("insert into t (text) values (?)", large)))
                    .isInstanceOfSatisfying(
                            AtollException.class,
                            told -> assertThat(told.code()).isEqualTo(ErrorCode.DISK_FULL));
            int deleted = writer.write(to -> to.update("delete from t"));
            assertThat(deleted).isEqualTo(1);
        }
    }

    @Test
    void reserve_that_was_given_up_is_asked_for_with_each_write_until_it_is_there() throws SQLException {
        Connection connection = DriverManager.getConnection("jdbc:sqlite::memory:");
        Sql sql = new Sql(connection);
        sql.execute("create table t (text text)");
        Once reserve = new Once(connection);
        try (Writer writer = new Writer(Dialect.SQLITE, sql, reserve)) {
            writer.start();
            writer.write(to -> to.update("insert into t (text) values ('a')"));
            writer.write(to -> to.update("insert into t (text) values ('a')"));
            assertThat(reserve.fillings).isEqualTo(1);
            Dialect.execute(connection, "pragma max_page_count = 3");
            String large = "x".repeat(MIB);
            writer.write(to -> to.update("insert into t (text) values (?)", large));
            writer.write(to -> to.update("insert into t (text) values ('a')"));
            writer.flush();
            assertThat(reserve.fillings).isGreaterThanOrEqualTo(3);
            reserve.times = 0;
            writer.write(to -> to.update("insert into t (text) values ('a')"));
            writer.write(to -> to.update("insert into t (text) values ('a')"));
            int fillings = reserve.fillings;
            writer.write(to -> to.update("insert into t (text) values ('a')"));
            assertThat(reserve.fillings).isEqualTo(fillings);
        }
    }

    @Test
    void reserve_takes_its_room_until_it_is_given_up(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("reserve");
        Reserve reserve = Reserve.of(file, MIB + 1);
        assertThat(reserve.giveUp()).isFalse();
        for (int round = 0; round < 2; round++) {
            reserve.fill();
            reserve.fill();
            assertThat(Files.size(file)).isEqualTo(MIB + 1);
            assertThat(reserve.giveUp()).isTrue();
            assertThat(reserve.giveUp()).isFalse();
            assertThat(file).doesNotExist();
        }
        // Half of one, left by a crash.
        Files.write(file, new byte[10]);
        reserve.fill();
        assertThat(Files.size(file)).isEqualTo(MIB + 1);
    }

    @Test
    void reserve_is_not_made_where_there_is_no_room_for_it(@TempDir Path folder) {
        Path file = folder.resolve("reserve");
        Reserve.of(file, Long.MAX_VALUE / 8).fill();
        assertThat(file).doesNotExist();
    }
}
