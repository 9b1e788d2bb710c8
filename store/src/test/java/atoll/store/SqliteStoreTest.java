package atoll.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.AtollException;
import atoll.core.PageRequest;
import atoll.core.ProjectId;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.store.Store;
import atoll.core.testing.StoreContract;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SqliteStoreTest extends StoreContract {
    @TempDir
    @SuppressWarnings("NullAway.Init") // JUnit sets it before anything else runs.
    private Path folder;

    @Override
    protected Store open() {
        return SqlStore.sqlite(folder.resolve("atoll.db"));
    }

    @Test
    void what_was_written_is_there_after_a_restart() {
        Path file = folder.resolve("again.db");
        try (Store store = SqlStore.sqlite(file)) {
            assertThat(store.nextEpoch("n", 0)).isEqualTo(1);
        }
        try (Store store = SqlStore.sqlite(file)) {
            assertThat(store.nextEpoch("n", 0)).isEqualTo(2);
        }
    }

    @Test
    void a_cursor_that_is_none_is_refused() {
        try (Store store = SqlStore.sqlite(folder.resolve("cursor.db"))) {
            SandboxQuery query = new SandboxQuery(
                    Optional.empty(), Optional.empty(), Map.of(), new PageRequest(2, Optional.of("'; drop table")));
            assertThatThrownBy(() -> store.sandboxes(ProjectId.DEFAULT, query))
                    .isInstanceOf(AtollException.class)
                    .hasMessageContaining("cursor");
        }
    }
}
