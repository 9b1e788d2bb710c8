package atoll.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.AtollException;
import atoll.core.BuildId;
import atoll.core.ErrorCode;
import atoll.core.template.BuildContext;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FolderFilesTest {
    @TempDir
    @SuppressWarnings("NullAway.Init") // JUnit sets it before anything else runs.
    private Path folder;

    @SuppressWarnings("NullAway.Init") // Set before each test.
    private FolderFiles files;

    @BeforeEach
    void open() throws IOException {
        files = FolderFiles.open(folder.resolve("templates"));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private List<Path> kept() throws IOException {
        try (Stream<Path> all = Files.list(folder.resolve("templates").resolve("contexts"))) {
            return all.toList();
        }
    }

    @Test
    void a_log_grows_and_is_read_from_any_offset() {
        BuildId id = BuildId.random();
        assertThat(files.read(id, 0, 10)).isEmpty();
        files.append(id, bytes("hello "));
        files.append(id, bytes("world"));
        assertThat(files.read(id, 0, 100)).isEqualTo(bytes("hello world"));
        assertThat(files.read(id, 6, 3)).isEqualTo(bytes("wor"));
        assertThat(files.read(id, 11, 3)).isEmpty();
        assertThat(files.read(id, 99, 3)).isEmpty();
        assertThat(files.logs()).containsExactly(id);
        files.deleteLog(id);
        files.deleteLog(id);
        assertThat(files.logs()).isEmpty();
    }

    @Test
    void a_context_is_kept_by_what_is_in_it() throws IOException {
        BuildContext context = files.putContext(new ByteArrayInputStream(bytes("abc")), 3);
        assertThat(context)
                .isEqualTo(new BuildContext("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 3));
        assertThat(files.putContext(new ByteArrayInputStream(bytes("abc")), 3)).isEqualTo(context);
        try (InputStream read = files.context(context.digest()).orElseThrow()) {
            assertThat(read.readAllBytes()).isEqualTo(bytes("abc"));
        }
        assertThat(files.contexts(Instant.EPOCH)).isEmpty();
        assertThat(files.contexts(Instant.now().plusSeconds(60))).containsExactly(context.digest());
        files.deleteContext(context.digest());
        assertThat(files.context(context.digest())).isEmpty();
    }

    @Test
    void a_context_that_is_too_large_or_breaks_off_leaves_nothing() throws IOException {
        assertThatThrownBy(() -> files.putContext(new ByteArrayInputStream(bytes("abcd")), 3))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.REQUEST_TOO_LARGE));
        var broken = new InputStream() {
            @Override
            public int read() throws IOException {
                throw new IOException("gone");
            }

            @Override
            public int read(byte[] into, int from, int most) throws IOException {
                throw new IOException("gone");
            }
        };
        assertThatThrownBy(() -> files.putContext(broken, 3)).isInstanceOf(IOException.class);
        assertThat(kept()).isEmpty();
    }

    @Test
    void what_an_upload_left_behind_is_removed_and_nobody_else_may_look() throws IOException {
        Path draft = folder.resolve("templates").resolve("contexts").resolve(".draft-1.tar");
        assertThat(Files.createFile(draft)).exists();
        FolderFiles again = FolderFiles.open(folder.resolve("templates"));
        assertThat(again.logs()).isEmpty();
        assertThat(kept()).isEmpty();
        assertThat(Files.getPosixFilePermissions(folder.resolve("templates")))
                .isEqualTo(PosixFilePermissions.fromString("rwx------"));
    }
}
