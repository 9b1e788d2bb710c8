package atoll.core.template;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class TarFoldersTest {
    @TempDir
    @SuppressWarnings("NullAway.Init") // JUnit sets it before anything else runs.
    private Path folder;

    private static byte[] tar(Path of, String... arguments) throws IOException, InterruptedException {
        Process tar = new ProcessBuilder(command(of, arguments)).start();
        tar.getOutputStream().close();
        byte[] out = tar.getInputStream().readAllBytes();
        String errors = new String(tar.getErrorStream().readAllBytes(), StandardCharsets.UTF_8);
        assertThat(tar.waitFor()).as(errors).isZero();
        return out;
    }

    private static List<String> command(Path of, String... arguments) {
        var command = new ArrayList<>(List.of("tar", "-C", of.toString()));
        command.addAll(List.of(arguments));
        return command;
    }

    private static byte[] joined(TarFolders.Part... parts) throws IOException {
        try (var joined = new TarFolders(List.of(parts))) {
            return joined.readAllBytes();
        }
    }

    private static InputStream stream(byte[] bytes) {
        return new ByteArrayInputStream(bytes);
    }

    @ParameterizedTest
    @ValueSource(strings = {"ustar", "gnu", "pax"})
    void each_tar_lies_in_its_folder_whatever_wrote_it(String format) throws Exception {
        Path from = Files.createDirectory(folder.resolve("from"));
        String deep = "d".repeat(60) + "/" + "e".repeat(60) + (format.equals("ustar") ? "" : "/" + "f".repeat(140));
        Files.createDirectories(from.resolve(deep));
        Files.writeString(from.resolve(deep).resolve("file"), "deep");
        byte[] large = new byte[100_001];
        Arrays.fill(large, (byte) 'x');
        Files.write(from.resolve("large"), large);
        Files.createFile(from.resolve("empty"));
        Files.writeString(from.resolve("script"), "#!/bin/sh\n");
        Files.setPosixFilePermissions(from.resolve("script"), PosixFilePermissions.fromString("rwxr-x---"));
        Files.createLink(from.resolve("twin"), from.resolve("script"));
        Files.createSymbolicLink(from.resolve("link"), Path.of("large"));
        Files.writeString(from.resolve("größe"), "umlaut");
        byte[] tar = tar(from, "--format=" + format, "-cf", "-", ".");

        Path to = Files.createDirectory(folder.resolve("to"));
        Files.write(
                folder.resolve("joined.tar"),
                joined(new TarFolders.Part("0", stream(tar)), new TarFolders.Part("1", stream(tar))));
        assertThat(tar(to, "-xpf", folder.resolve("joined.tar").toString())).isEmpty();
        for (String part : List.of("0", "1")) {
            Path made = to.resolve(part);
            assertThat(made.resolve(deep).resolve("file")).hasContent("deep");
            assertThat(made.resolve("large")).hasBinaryContent(large);
            assertThat(made.resolve("empty")).isEmptyFile();
            assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(made.resolve("script"))))
                    .isEqualTo("rwxr-x---");
            assertThat(Files.isSameFile(made.resolve("twin"), made.resolve("script")))
                    .isTrue();
            assertThat(Files.readSymbolicLink(made.resolve("link"))).hasToString("large");
            assertThat(made.resolve("größe")).hasContent("umlaut");
        }
        assertThat(to)
                .isDirectoryContaining(path -> path.endsWith("0"))
                .isDirectoryNotContaining(path -> path.endsWith("large"));
    }

    @Test
    void it_can_be_read_in_pieces_of_any_size() throws Exception {
        Files.writeString(folder.resolve("a"), "content of a");
        byte[] tar = tar(folder, "-cf", "-", "a");
        byte[] whole = joined(new TarFolders.Part("x", stream(tar)));
        byte[] piecemeal = new byte[whole.length];
        try (var joined = new TarFolders(List.of(new TarFolders.Part("x", stream(tar))))) {
            int at = 0;
            for (int size = 1; at < whole.length; size = size % 700 + 1) {
                at += joined.readNBytes(piecemeal, at, Math.min(size, whole.length - at));
            }
            assertThat(joined.read()).isEqualTo(-1);
        }
        assertThat(piecemeal).isEqualTo(whole);
    }

    @Test
    void what_is_no_tar_or_ends_early_is_refused() throws Exception {
        Files.writeString(folder.resolve("a"), "content of a".repeat(1000));
        byte[] tar = tar(folder, "-cf", "-", "a");
        for (int length : new int[] {100, 512, 5000}) {
            assertThatThrownBy(() -> joined(new TarFolders.Part("x", stream(Arrays.copyOf(tar, length)))))
                    .as("%s bytes", length)
                    .isInstanceOf(TarFolders.NoTarException.class);
        }
        byte[] noise = new byte[2048];
        Arrays.fill(noise, (byte) 'n');
        assertThatThrownBy(() -> joined(new TarFolders.Part("x", stream(noise))))
                .isInstanceOf(TarFolders.NoTarException.class);
        assertThat(joined()).hasSize(1024);
    }
}
