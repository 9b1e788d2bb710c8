package atoll.http;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Finds what must be escaped in a JSON string, eight bytes at a time. */
final class JsonText {
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final long ONES = 0x0101010101010101L;
    private static final long HIGHS = 0x8080808080808080L;
    private static final long QUOTES = ONES * '"';
    private static final long BACKSLASHES = ONES * '\\';

    private JsonText() {}

    static boolean needsEscape(byte b) {
        // Bytes of 0x80 and above (negative here) belong to UTF-8 sequences and stand as they are.
        return (b >= 0 && b < 0x20) || b == '"' || b == '\\';
    }

    /** The index of the first byte from {@code from} on that needs an escape, or {@code to}. */
    static int plainUntil(byte[] bytes, int from, int to) {
        int at = from;
        for (; at + 8 <= to; at += 8) {
            long word = (long) LONGS.get(bytes, at);
            long found = (below(word, 0x20) | zeros(word ^ QUOTES) | zeros(word ^ BACKSLASHES)) & HIGHS;
            if (found != 0) {
                break;
            }
        }
        while (at < to && !needsEscape(bytes[at])) {
            at++;
        }
        return at;
    }

    /** High bits set where a byte is zero; above the first one, borrows may set more, which the bytewise search that follows corrects. */
    private static long zeros(long word) {
        return (word - ONES) & ~word;
    }

    /** The same where a byte is less than {@code limit}. */
    private static long below(long word, int limit) {
        return (word - ONES * limit) & ~word;
    }
}
