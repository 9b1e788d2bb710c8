package atoll.store;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class InstallationSecretsTest {
    @TempDir
    @SuppressWarnings("NullAway.Init") // JUnit sets it before anything else runs.
    private Path data;

    private InstallationSecrets open() throws IOException {
        return InstallationSecrets.open(data.resolve("secret"));
    }

    @Test
    void only_its_user_can_read_the_secrets() throws Exception {
        assertThat(open().apiKey()).startsWith("atoll_");
        assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(data.resolve("secret"))))
                .isEqualTo("rwx------");
        for (String name : new String[] {"master-key", "api-key"}) {
            assertThat(PosixFilePermissions.toString(
                            Files.getPosixFilePermissions(data.resolve("secret").resolve(name))))
                    .isEqualTo("rw-------");
        }
    }

    @Test
    void the_secrets_stay_the_same() throws Exception {
        InstallationSecrets first = open();
        InstallationSecrets second = open();
        assertThat(second.apiKey()).isEqualTo(first.apiKey());
        assertThat(second.derive("token")).isEqualTo(first.derive("token"));
        assertThat(second.derive("token")).isNotEqualTo(first.derive("other"));
        assertThat(second.unseal("p", first.seal("p", "geheim ü"))).isEqualTo("geheim ü");
    }

    @Test
    void sealed_text_opens_only_for_its_purpose_and_unchanged() throws Exception {
        InstallationSecrets secrets = open();
        String sealed = secrets.seal("p", "x");
        assertThat(secrets.seal("p", "x")).isNotEqualTo(sealed);
        assertThatThrownBy(() -> secrets.unseal("q", sealed)).isInstanceOf(IllegalArgumentException.class);
        char changed = sealed.charAt(5) == 'A' ? 'B' : 'A';
        String broken = sealed.substring(0, 5) + changed + sealed.substring(6);
        assertThatThrownBy(() -> secrets.unseal("p", broken)).isInstanceOf(IllegalArgumentException.class);
    }

    @Test
    void a_damaged_key_is_reported_and_kept() throws Exception {
        assertThat(open().apiKey()).isNotEmpty();
        Files.writeString(data.resolve("secret/master-key"), "half");
        assertThatThrownBy(this::open).isInstanceOf(IOException.class).hasMessageContaining("damaged");
        assertThat(Files.readString(data.resolve("secret/master-key"))).isEqualTo("half");
    }
}
