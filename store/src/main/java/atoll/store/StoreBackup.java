package atoll.store;

import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.List;
import java.util.Optional;
import org.sqlite.SQLiteConfig;
import org.sqlite.SQLiteOpenMode;

/**
 * Copies a store in a SQLite file as it is at one moment, be it in use or not. Nothing waits for the copy: it is read in one transaction, and what is
 * committed meanwhile goes to the write-ahead log.
 */
public final class StoreBackup {
    private static final int BUSY_MILLIS = 60_000;

    private StoreBackup() {}

    /** A sandbox that has not ended. {@code state} is one of core's, in capitals; {@code pausedIn} the snapshot that it is paused in. */
    public record NamedSandbox(String id, Optional<String> name, String state, String box, Optional<String> pausedIn) {}

    /** {@code state} is one of core's, in capitals. */
    public record NamedSnapshot(String id, Optional<String> name, String state, Optional<String> sandbox) {}

    /** What a store names and does not hold. */
    public record Named(List<NamedSandbox> sandboxes, List<NamedSnapshot> snapshots, List<String> images) {
        /** {@code {"sandboxes": [{"id", "name", "state", "box", "paused_in"}], "snapshots": [{"id", "name", "state", "sandbox"}], "images": [digest]}} */
        public String toJson() {
            return Json.ofNamed(this);
        }
    }

    /**
     * Writes a copy of {@code store} to {@code copy}, which must not exist, and says what the copy names.
     *
     * @throws SQLException if there is no such store, or its file is damaged
     */
    public static Named copy(Path store, Path copy) throws SQLException {
        var config = new SQLiteConfig();
        // What is not there is not made.
        config.resetOpenMode(SQLiteOpenMode.CREATE);
        config.setBusyTimeout(BUSY_MILLIS);
        try (Connection connection = config.createConnection("jdbc:sqlite:" + store.toAbsolutePath());
                PreparedStatement vacuum = connection.prepareStatement("vacuum into ?")) {
            vacuum.setString(1, copy.toAbsolutePath().toString());
            boolean hasRows = vacuum.execute();
            assert !hasRows;
        }
        try (Connection connection = DriverManager.getConnection("jdbc:sqlite:" + copy.toAbsolutePath());
                Sql sql = new Sql(connection)) {
            List<String> problems = sql.query(row -> row.text("quick_check"), "pragma quick_check");
            if (!problems.equals(List.of("ok"))) {
                throw new SQLException("the store is damaged: " + problems.getFirst());
            }
            return named(sql);
        }
    }

    private static Named named(Sql sql) throws SQLException {
        List<NamedSandbox> sandboxes = sql.query(
                row -> new NamedSandbox(
                        row.text("sandbox_id"),
                        row.optionalText("name"),
                        row.text("state"),
                        row.text("box_id"),
                        row.optionalText("paused_in")),
                "select sandbox_id, name, state, box_id, paused_in from sandboxes where state <> 'ENDED' order by created_at, sandbox_id");
        List<NamedSnapshot> snapshots = sql.query(
                row -> new NamedSnapshot(
                        row.text("snapshot_id"),
                        row.optionalText("name"),
                        row.text("state"),
                        row.optionalText("sandbox_id")),
                "select snapshot_id, name, state, sandbox_id from snapshots order by created_at, snapshot_id");
        List<String> images =
                sql.query(row -> row.text("digest"), "select distinct digest from template_images order by digest");
        return new Named(sandboxes, snapshots, images);
    }
}
