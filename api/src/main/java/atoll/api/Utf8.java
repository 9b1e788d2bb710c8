package atoll.api;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Checks UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF. */
final class Utf8 {
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final long HIGHS = 0x8080808080808080L;

    private Utf8() {}

    /** The index up to which the bytes are whole valid characters. */
    static int validUntil(byte[] bytes, int from, int to) {
        int at = from;
        while (at < to) {
            if (bytes[at] >= 0) {
                // ASCII, by far the most there is, eight bytes at a time.
                while (at + 8 <= to && ((long) LONGS.get(bytes, at) & HIGHS) == 0) {
                    at += 8;
                }
                while (at < to && bytes[at] >= 0) {
                    at++;
                }
                continue;
            }
            int size = sizeOf(bytes[at] & 0xff);
            if (size == 0 || to - at < size || !follows(bytes, at, size)) {
                return at;
            }
            at += size;
        }
        return at;
    }

    /**
     * Where the incomplete but so far valid character starts with which the bytes end; {@code to} if they do not end with one. Looks only at and behind
     * {@code from}.
     */
    static int incompleteAt(byte[] bytes, int from, int to) {
        for (int at = to - 1; at >= Math.max(from, to - 3); at--) {
            int lead = bytes[at] & 0xff;
            if ((lead & 0xc0) == 0x80) {
                continue;
            }
            int have = to - at;
            boolean begun = sizeOf(lead) > have && follows(bytes, at, have);
            return begun ? at : to;
        }
        return to;
    }

    private static int sizeOf(int lead) {
        if (lead >= 0xc2 && lead <= 0xdf) {
            return 2;
        }
        if (lead >= 0xe0 && lead <= 0xef) {
            return 3;
        }
        return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
    }

    /** Whether the bytes after the lead, up to {@code have} with it, may follow it. */
    private static boolean follows(byte[] bytes, int at, int have) {
        if (have < 2) {
            return true;
        }
        int second = bytes[at + 1] & 0xff;
        int least = 0x80;
        int most = 0xbf;
        switch (bytes[at] & 0xff) {
            case 0xe0 -> least = 0xa0;
            case 0xed -> most = 0x9f;
            case 0xf0 -> least = 0x90;
            case 0xf4 -> most = 0x8f;
            default -> {}
        }
        if (second < least || second > most) {
            return false;
        }
        for (int i = 2; i < have; i++) {
            if ((bytes[at + i] & 0xc0) != 0x80) {
                return false;
            }
        }
        return true;
    }
}
