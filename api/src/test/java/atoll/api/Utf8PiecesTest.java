package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class Utf8PiecesTest {
    @Test
    void random_bytes_in_random_chunks_come_out_unchanged_and_every_text_is_valid() throws Exception {
        var random = new Random(11);
        for (int round = 0; round < 2000; round++) {
            byte[] bytes = randomBytes(random);
            var collected = new Collector();
            var pieces = new Utf8Pieces();
            int at = 0;
            while (at < bytes.length) {
                int size = 1 + random.nextInt(Math.min(9, bytes.length - at));
                pieces.chunk(ByteBuffer.wrap(bytes, at, size), collected);
                at += size;
            }
            pieces.end(collected);
            assertThat(collected.all.toByteArray()).isEqualTo(bytes);
            if (isValid(bytes)) {
                assertThat(collected.binaries).isZero();
            }
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {0xc0, 0xc1, 0xf5, 0xff, 0x80, 0xbf})
    void a_byte_that_can_start_no_character_is_binary_at_once(int value) throws Exception {
        var collected = new Collector();
        new Utf8Pieces().chunk(ByteBuffer.wrap(new byte[] {'a', (byte) value}), collected);
        assertThat(collected.all.size()).isEqualTo(2);
        assertThat(collected.binaries).isEqualTo(1);
    }

    @Test
    void validity_is_that_of_the_jdk_for_every_sequence_of_up_to_three_bytes_of_interest() {
        int[] interesting = {
            'a', 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xee, 0xf0, 0xf1,
            0xf4, 0xf5, 0xff
        };
        for (int a : interesting) {
            for (int b : interesting) {
                for (int c : interesting) {
                    for (int d : interesting) {
                        byte[] bytes = {(byte) a, (byte) b, (byte) c, (byte) d};
                        assertThat(Utf8.validUntil(bytes, 0, 4) == 4).isEqualTo(isValid(bytes));
                    }
                }
            }
        }
    }

    private static byte[] randomBytes(Random random) {
        var text = new StringBuilder();
        int length = random.nextInt(40);
        for (int i = 0; i < length; i++) {
            text.appendCodePoint(
                    switch (random.nextInt(4)) {
                        case 0 -> 0x1f600 + random.nextInt(20);
                        case 1 -> 0x3040 + random.nextInt(60);
                        case 2 -> 0xe0 + random.nextInt(20);
                        default -> 'a' + random.nextInt(26);
                    });
        }
        byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
        if (bytes.length > 0 && random.nextBoolean()) {
            bytes[random.nextInt(bytes.length)] = (byte) random.nextInt(256);
        }
        return bytes;
    }

    private static boolean isValid(byte[] bytes) {
        try {
            CharBuffer decoded = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes));
            return decoded != null;
        } catch (CharacterCodingException _) {
            return false;
        }
    }

    private static final class Collector implements Utf8Pieces.Sink {
        final ByteArrayOutputStream all = new ByteArrayOutputStream();
        int binaries;

        @Override
        public void text(byte[] utf8, int from, int to) throws IOException {
            assertThat(Utf8.validUntil(utf8, from, to)).isEqualTo(to);
            all.write(utf8, from, to - from);
        }

        @Override
        public void binary(byte[] bytes, int from, int to) {
            binaries++;
            all.write(bytes, from, to - from);
        }
    }
}
