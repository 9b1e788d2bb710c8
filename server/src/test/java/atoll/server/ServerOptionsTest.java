package atoll.server;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.Settings;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ServerOptionsTest {
    @Test
    void the_defaults_listen_on_loopback_only() throws IOException {
        ServerOptions options = read("--data", "/d");
        assertThat(options.host()).isEqualTo("127.0.0.1");
        assertThat(options.port()).isEqualTo(8080);
        assertThat(options.data()).isEqualTo(Path.of("/d"));
        assertThat(options.engineSocket()).isEqualTo(Path.of("/d/engine.sock"));
        assertThat(options.accessLog()).isEmpty();
        assertThat(options.allowedOrigins()).isEmpty();
        assertThat(options.maxBodyBytes()).isEqualTo(40 << 20);
        assertThat(options.settings()).isEmpty();
    }

    @Test
    void the_help_names_every_setting() {
        assertThat(ServerOptions.usage()).contains(Settings.names()).contains("--engine-socket");
    }

    @Test
    void a_flag_counts_before_the_environment_and_that_before_the_file(@TempDir Path folder) throws IOException {
        Path file = Files.writeString(folder.resolve("atoll.properties"), "port=1\nhost=::1\ndata=/f\npool.depth=7\n");
        ServerOptions options = ServerOptions.read(
                List.of("--config", file.toString(), "--port=3"), Map.of("ATOLL_PORT", "2", "ATOLL_HOST", "0.0.0.0"));
        assertThat(options.port()).isEqualTo(3);
        assertThat(options.host()).isEqualTo("0.0.0.0");
        assertThat(options.data()).isEqualTo(Path.of("/f"));
        assertThat(options.settings()).isEqualTo(Map.of("pool.depth", "7"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "--data /d --prot 1",
                "--data /d --port x",
                "--data /d --port 70000",
                "--data /d --port",
                "--data /d extra",
                "--data /d --port 1 --port 2",
                "--data /d --config /no/such/file",
                "--port 1",
            })
    void what_makes_no_sense_is_refused_with_a_reason(String line) {
        assertThatThrownBy(() -> read(line.split(" ", -1)))
                .isInstanceOf(IllegalArgumentException.class)
                .hasMessageMatching("(?s).{10,}");
    }

    private static ServerOptions read(String... arguments) throws IOException {
        return ServerOptions.read(List.of(arguments), Map.of());
    }
}
