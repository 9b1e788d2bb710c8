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

    /** Whether a character waits for its rest. */
    public boolean isOpen() {
        return rest.hasRemaining();
    }

    /** The text that {@code chunk} completes; takes all of the chunk. */
    public String decode(ByteBuffer chunk) {
        if (rest.hasRemaining()) {
            return decodeOpen(chunk);
        }
        // The constructor of String is several times as fast as a decoder, and takes the same bytes for broken. A first
        // byte of a
        // character always begins one anew, so what stands before it can be decoded apart.
        byte[] whole = new byte[chunk.remaining() - openAtEnd(chunk)];
        chunk.get(whole);
        String text = new String(whole, StandardCharsets.UTF_8);
        return chunk.hasRemaining() ? text + decodeOpen(chunk) : text;
    }

    /** How many bytes at the end begin a character and do not end it. */
    private static int openAtEnd(ByteBuffer chunk) {
        int end = chunk.limit();
        for (int back = 1; back <= 3 && end - back >= chunk.position(); back++) {
            int b = chunk.get(end - back) & 0xff;
            if (b >= 0xc0) {
                int length = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : 2;
                return length > back ? back : 0;
            }
            if (b < 0x80) {
                return 0;
            }
        }
        return 0;
    }

    private String decodeOpen(ByteBuffer chunk) {
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
