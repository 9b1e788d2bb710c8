package atoll.core.text;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.execution.CapturedText;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.Tuple;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.Size;
import org.junit.jupiter.api.Test;

class TextTest {
    private static String terminal(String... chunks) {
        TerminalText text = new TerminalText(1 << 20);
        for (String chunk : chunks) {
            text.print(chunk);
        }
        return Captured.text(text.end(), 0, false).text();
    }

    /** Every way to cut a text in two gives the same. */
    private static String cutEverywhere(String text) {
        String whole = terminal(text);
        for (int i = 0; i <= text.length(); i++) {
            assertThat(terminal(text.substring(0, i), text.substring(i))).isEqualTo(whole);
        }
        return whole;
    }

    @Test
    void a_carriage_return_overwrites_the_line() {
        assertThat(cutEverywhere("10%\r55%\r100%\n")).isEqualTo("100%\n");
        assertThat(cutEverywhere("hello\rab\n")).isEqualTo("abllo\n");
        assertThat(cutEverywhere("first\nsecond\rS\n")).isEqualTo("first\nSecond\n");
    }

    @Test
    void a_windows_line_end_is_a_line_end() {
        assertThat(cutEverywhere("one\r\ntwo\r\n")).isEqualTo("one\ntwo\n");
        assertThat(cutEverywhere("one\r\r\ntwo")).isEqualTo("one\ntwo");
    }

    @Test
    void a_trailing_carriage_return_leaves_the_line() {
        assertThat(cutEverywhere("100%\r")).isEqualTo("100%");
    }

    @Test
    void a_backspace_goes_back_one() {
        assertThat(cutEverywhere("abc\b\bX\n")).isEqualTo("aXc\n");
        assertThat(cutEverywhere("\b\bab")).isEqualTo("ab");
    }

    @Test
    void erase_sequences_erase() {
        assertThat(cutEverywhere("long line\r\u001b[Kshort\n")).isEqualTo("short\n");
        assertThat(cutEverywhere("abcdef\b\b\u001b[0K!\n")).isEqualTo("abcd!\n");
        assertThat(cutEverywhere("abcdef\r\u001b[2Kx")).isEqualTo("x");
    }

    @Test
    void other_escape_sequences_pass() {
        assertThat(cutEverywhere("\u001b[31mred\u001b[0m\n")).isEqualTo("\u001b[31mred\u001b[0m\n");
        assertThat(cutEverywhere("\u001b]0;title\u0007x")).isEqualTo("\u001b]0;title\u0007x");
        assertThat(cutEverywhere("end\u001b")).isEqualTo("end\u001b");
    }

    @Test
    void an_endless_line_takes_bounded_memory_and_stays_whole() {
        TerminalText text = new TerminalText(8 << 20);
        for (int i = 0; i < 64; i++) {
            text.print("x".repeat(64 * 1024));
        }
        assertThat(text.end().total()).isEqualTo(4 << 20);
    }

    @Property(tries = 300)
    void text_without_control_characters_is_seen_as_it_is(@ForAll("plain") List<String> chunks) {
        assertThat(terminal(chunks.toArray(String[]::new))).isEqualTo(String.join("", chunks));
    }

    @Property(tries = 300)
    void chunks_do_not_change_what_is_seen(@ForAll("controls") List<String> chunks) {
        assertThat(terminal(chunks.toArray(String[]::new))).isEqualTo(terminal(String.join("", chunks)));
    }

    @Property(tries = 1000)
    void bytes_that_are_printed_as_they_are_look_like_their_text(
            @ForAll("terminal") List<String> chunks, @ForAll @IntRange(min = 2, max = 60) int limit) {
        TerminalText byText = new TerminalText(limit);
        TerminalText byBytes = new TerminalText(limit);
        for (String chunk : chunks) {
            byText.print(chunk);
            if (!byBytes.printPlain(ByteBuffer.wrap(("#" + chunk).getBytes(StandardCharsets.UTF_8))
                    .position(1)
                    .asReadOnlyBuffer())) {
                byBytes.print(chunk);
            }
        }
        HeadAndTail wanted = byText.end();
        HeadAndTail seen = byBytes.end();
        assertThat(seen.head()).isEqualTo(wanted.head());
        assertThat(seen.tail()).isEqualTo(wanted.tail());
        assertThat(seen.total()).isEqualTo(wanted.total());
    }

    @Test
    void only_what_moves_no_cursor_is_printed_as_it_is() {
        for (int c = 0; c < 0x100; c++) {
            for (int at = 0; at < 20; at++) {
                byte[] bytes = new byte[20];
                Arrays.fill(bytes, (byte) 'a');
                bytes[at] = (byte) c;
                boolean plain = c < 0x80 && c != '\r' && c != '\b' && c != 0x1b;
                assertThat(new TerminalText(100).printPlain(ByteBuffer.wrap(bytes)))
                        .as("byte %d at %d", c, at)
                        .isEqualTo(plain);
            }
        }
    }

    @Provide
    Arbitrary<List<String>> terminal() {
        Arbitrary<String> plain =
                Arbitraries.strings().withChars("abcdefghij\n").ofMaxLength(30);
        Arbitrary<String> any =
                Arbitraries.strings().withChars("abé€\r\n\b\u001b[K0m").ofMaxLength(12);
        return Arbitraries.frequencyOf(Tuple.of(2, plain), Tuple.of(1, any))
                .list()
                .ofMaxSize(10);
    }

    @Provide
    Arbitrary<List<String>> plain() {
        return Arbitraries.strings().withChars("ab é\n\t").ofMaxLength(8).list().ofMaxSize(8);
    }

    @Provide
    Arbitrary<List<String>> controls() {
        return Arbitraries.strings()
                .withChars("ab\r\n\b\u001b[K0m")
                .ofMaxLength(8)
                .list()
                .ofMaxSize(8);
    }

    @Property(tries = 500)
    void characters_split_over_chunks_are_joined(
            @ForAll("unicode") String text, @ForAll @IntRange(min = 1, max = 7) int size) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        assertThat(decoded(bytes, size)).isEqualTo(text);
    }

    @Property(tries = 500)
    void any_bytes_decode_the_same_in_any_chunks(
            @ForAll @Size(max = 40) byte[] bytes, @ForAll @IntRange(min = 1, max = 7) int size) {
        assertThat(decoded(bytes, size)).isEqualTo(new String(bytes, StandardCharsets.UTF_8));
    }

    @Provide
    Arbitrary<String> unicode() {
        return Arbitraries.of("a", "é", "€", "😀", "👩‍👩‍👧", "\0", "\uFFFD")
                .list()
                .ofMaxSize(12)
                .map(parts -> String.join("", parts));
    }

    private static String decoded(byte[] bytes, int size) {
        Utf8Joiner joiner = new Utf8Joiner();
        StringBuilder text = new StringBuilder();
        for (int from = 0; from < bytes.length; from += size) {
            text.append(joiner.decode(ByteBuffer.wrap(bytes, from, Math.min(size, bytes.length - from))));
        }
        return text.append(joiner.end()).toString();
    }

    @Property(tries = 1000)
    void head_and_tail_are_the_first_and_last_bytes(
            @ForAll @Size(max = 12) List<@Size(max = 9) byte[]> chunks,
            @ForAll @IntRange(min = 2, max = 16) int limit) {
        HeadAndTail kept = new HeadAndTail(limit);
        List<Byte> all = new ArrayList<>();
        for (byte[] chunk : chunks) {
            kept.add(ByteBuffer.wrap(chunk));
            for (byte b : chunk) {
                all.add(b);
            }
        }
        byte[] whole = new byte[all.size()];
        for (int i = 0; i < whole.length; i++) {
            whole[i] = all.get(i);
        }
        int head = Math.min(whole.length, limit - limit / 2);
        int tail = Math.min(whole.length - head, limit / 2);
        assertThat(bytes(kept.head())).isEqualTo(Arrays.copyOfRange(whole, 0, head));
        assertThat(bytes(kept.tail())).isEqualTo(Arrays.copyOfRange(whole, whole.length - tail, whole.length));
        assertThat(kept.total()).isEqualTo(whole.length);
        assertThat(kept.dropped()).isEqualTo(whole.length - head - tail);
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    @Test
    void a_hole_is_kept_and_counted() {
        HeadAndTail kept = new HeadAndTail(100);
        kept.add(ByteBuffer.wrap("before".getBytes(StandardCharsets.UTF_8)));
        kept.skip(1000);
        kept.add(ByteBuffer.wrap("after".getBytes(StandardCharsets.UTF_8)));
        CapturedText text = Captured.text(kept, kept.total(), true);
        assertThat(text.text()).isEqualTo("before\n[… 1000 bytes left out …]\nafter");
        assertThat(text.totalBytes()).isEqualTo(1011);
        assertThat(text.truncated()).isTrue();
    }

    @Test
    void no_character_is_cut_in_half_by_the_limit() {
        HeadAndTail kept = new HeadAndTail(10);
        kept.add(ByteBuffer.wrap("😀😀😀😀😀".getBytes(StandardCharsets.UTF_8)));
        assertThat(Captured.text(kept, 20, true).text()).isEqualTo("😀\n[… 12 bytes left out …]\n😀");
    }

    @Test
    void one_final_newline_is_trimmed() {
        HeadAndTail kept = new HeadAndTail(10);
        kept.add(ByteBuffer.wrap("a\n\n".getBytes(StandardCharsets.UTF_8)));
        assertThat(Captured.text(kept, 3, true).text()).isEqualTo("a\n");
    }
}
