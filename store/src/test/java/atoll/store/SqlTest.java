package atoll.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.sql.DriverManager;
import java.sql.SQLException;
import org.junit.jupiter.api.Test;

class SqlTest {
    @Test
    void statement_that_failed_once_works_again() throws SQLException {
        try (Sql sql = new Sql(DriverManager.getConnection("jdbc:sqlite::memory:"))) {
            sql.execute("create table t (n integer primary key)");
            for (int round = 0; round < 3; round++) {
                assertThatThrownBy(() -> sql.execute("rollback")).hasMessageContaining("no transaction is active");
                sql.execute("begin immediate");
                assertThatThrownBy(() -> sql.execute("begin immediate")).hasMessageContaining("within a transaction");
                sql.update("insert into t (n) values (?)", 1);
                assertThatThrownBy(() -> sql.update("insert into t (n) values (?)", 1))
                        .hasMessageContaining("UNIQUE");
                sql.execute("rollback");
            }
            assertThat(sql.first(row -> row.text("n"), "select count(*) as n from t"))
                    .contains("0");
        }
    }

    @Test
    void full_disk_is_over_once_there_is_room() throws SQLException {
        try (Sql sql = new Sql(DriverManager.getConnection("jdbc:sqlite::memory:"))) {
            sql.execute("create table t (text text)");
            try (var statement = sql.connection().createStatement()) {
                statement.execute("pragma max_page_count = 20");
            }
            for (int round = 0; round < 2; round++) {
                sql.execute("begin immediate");
                assertThatThrownBy(() -> sql.update("insert into t (text) values (?)", "x".repeat(1 << 20)))
                        .hasMessageContaining("full");
                // SQLite may have rolled back by itself.
                try {
                    sql.execute("rollback");
                } catch (SQLException e) {
                    assertThat(e.getMessage()).contains("no transaction is active");
                }
            }
            sql.execute("begin immediate");
            sql.update("insert into t (text) values (?)", "fits");
            sql.execute("commit");
        }
    }
}
