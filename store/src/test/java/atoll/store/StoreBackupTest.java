package atoll.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class StoreBackupTest {
    @TempDir
    @SuppressWarnings("NullAway.Init") // JUnit sets it before anything else runs.
    private Path folder;

    private void execute(Path file, String... statements) throws SQLException {
        try (Connection connection = DriverManager.getConnection("jdbc:sqlite:" + file)) {
            for (String sql : statements) {
                Dialect.execute(connection, sql);
            }
        }
    }

    @Test
    void a_copy_is_of_one_moment_while_the_store_is_written_to() throws SQLException, InterruptedException {
        Path file = folder.resolve("atoll.db");
        try (SqlStore store = SqlStore.sqlite(file)) {
            var stop = new AtomicBoolean();
            var last = new AtomicLong();
            var begun = new CountDownLatch(3);
            Thread writer = Thread.ofPlatform().start(() -> {
                while (!stop.get()) {
                    last.set(store.nextEpoch("n", 0));
                    begun.countDown();
                }
            });
            begun.await();
            for (int i = 0; i < 10; i++) {
                Path copy = folder.resolve("copy" + i + ".db");
                long before = last.get();
                StoreBackup.Named named = StoreBackup.copy(file, copy);
                assertThat(named.sandboxes()).isEmpty();
                try (SqlStore copied = SqlStore.sqlite(copy)) {
                    long next = copied.nextEpoch("n", 0);
                    assertThat(next).isBetween(before + 1, last.get() + 2);
                }
            }
            stop.set(true);
            writer.join();
        }
    }

    @Test
    void it_says_what_the_copy_names_but_not_what_has_ended() throws SQLException {
        Path file = folder.resolve("atoll.db");
        SqlStore.sqlite(file).close();
        String sandbox =
                "insert into sandboxes (sandbox_id, project_id, template, state, memory_bytes, cpu_millis, disk_bytes,"
                        + " max_processes, max_open_files, labels, box_id, run_id, created_at, name, paused_in) values ('%s', 'default', 'python', '%s',"
                        + " 1, 1, 1, 1, 1, '{}', '%s', 'run', %d, %s, %s)";
        execute(
                file,
                sandbox.formatted("sb-1", "PAUSED", "box-1", 1, "'wo\"rk'", "'snap-2'"),
                sandbox.formatted("sb-2", "RUNNING", "box-2", 2, "null", "null"),
                sandbox.formatted("sb-3", "ENDED", "box-3", 3, "null", "null"),
                "insert into snapshots (snapshot_id, project_id, kind, sandbox_id, template, memory_bytes, cpu_millis, disk_bytes,"
                        + " max_processes, max_open_files, env, contexts, labels, state, size_bytes, stopped_us, created_at, detail)"
                        + " values ('snap-1', 'default', 'MEMORY', 'sb-2', 'python', 1, 1, 1, 1, 1, '{}', '[]', '{}', 'READY', 1, 1, 1, '')",
                "insert into template_images (image_key, digest, made_at) values ('k', 'd', 1), ('l', 'd', 1)");
        StoreBackup.Named named = StoreBackup.copy(file, folder.resolve("copy.db"));
        assertThat(named.sandboxes())
                .containsExactly(
                        new StoreBackup.NamedSandbox(
                                "sb-1", Optional.of("wo\"rk"), "PAUSED", "box-1", Optional.of("snap-2")),
                        new StoreBackup.NamedSandbox("sb-2", Optional.empty(), "RUNNING", "box-2", Optional.empty()));
        assertThat(named.snapshots())
                .containsExactly(
                        new StoreBackup.NamedSnapshot("snap-1", Optional.empty(), "READY", Optional.of("sb-2")));
        assertThat(named.images()).isEqualTo(List.of("d"));
        assertThat(named.toJson())
                .isEqualTo(
                        "{\"sandboxes\":[{\"id\":\"sb-1\",\"name\":\"wo\\\"rk\",\"state\":\"PAUSED\",\"box\":\"box-1\",\"paused_in\":\"snap-2\"},"
                                + "{\"id\":\"sb-2\",\"state\":\"RUNNING\",\"box\":\"box-2\"}],"
                                + "\"snapshots\":[{\"id\":\"snap-1\",\"state\":\"READY\",\"sandbox\":\"sb-2\"}],\"images\":[\"d\"]}");
    }

    @Test
    void where_there_is_no_store_none_is_made() {
        Path file = folder.resolve("none.db");
        assertThatThrownBy(() -> StoreBackup.copy(file, folder.resolve("copy.db")))
                .isInstanceOf(SQLException.class);
        assertThat(file).doesNotExist();
    }

    @Test
    void a_damaged_store_is_not_copied_in_silence() throws SQLException, IOException {
        Path file = folder.resolve("atoll.db");
        SqlStore.sqlite(file).close();
        byte[] bytes = Files.readAllBytes(file);
        for (int i = 8192; i < bytes.length; i++) {
            bytes[i] = (byte) 0xa5;
        }
        Path written = Files.write(file, bytes);
        assertThatThrownBy(() -> StoreBackup.copy(written, folder.resolve("copy.db")))
                .isInstanceOf(SQLException.class);
    }
}
