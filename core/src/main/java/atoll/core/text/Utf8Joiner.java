package atoll.core.text;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;

/**
 * Makes text of UTF-8 bytes that come in chunks. A character split over chunks is joined, bytes that are no UTF-8 become U+FFFD.
 * One per stream; not for several threads.
 */
public final class Utf8Joiner {
    private final CharsetDecoder decoder = StandardCharsets.UTF_8
            .newDecoder()
            .onMalformedInput(CodingErrorAction.REPLACE)
            .onUnmappableCharacter(CodingErrorAction.REPLACE);
    /** The bytes of a character whose rest has not come yet, ready to be read. */
    private final ByteBuffer rest = ByteBuffer.allocate(8).flip();

    /** The text that {@code chunk} completes; takes all of the chunk. */
    public String decode(ByteBuffer chunk) {
        CharBuffer text = CharBuffer.allocate(chunk.remaining() + rest.remaining() + 1);
        while (rest.hasRemaining() && chunk.hasRemaining()) {
            rest.compact();
            rest.put(chunk.get());
            rest.flip();
            decoder.decode(rest, text, false);
        }
        decoder.decode(chunk, text, false);
        if (chunk.hasRemaining()) {
            rest.compact();
            rest.put(chunk);
            rest.flip();
        }
        return text.flip().toString();
    }

    /** The text for a character that never became whole; empty if there is none. The joiner can be used afresh then. */
    public String end() {
        CharBuffer text = CharBuffer.allocate(8);
        decoder.decode(rest, text, true);
        decoder.flush(text);
        decoder.reset();
        rest.clear().flip();
        return text.flip().toString();
    }
}
