package atoll.core.text;

import java.nio.ByteBuffer;

/**
 * Keeps the first and the last bytes of a stream, each up to a bound, and counts the rest. Memory grows with what is kept, never with
 * what is printed.
 */
public final class HeadAndTail {
    private final int headLimit;
    private final int tailLimit;
    private byte[] head = new byte[0];
    private int headLength;
    /** A head that still grew after a hole would hide it. */
    private boolean headClosed;
    /** A ring once it has grown to its limit: {@code tailEnd} is where the next byte goes. */
    private byte[] tail = new byte[0];

    private int tailLength;
    private int tailEnd;
    private long total;

    /** Keeps {@code limit} bytes, half of them from the end. */
    public HeadAndTail(int limit) {
        if (limit < 2) {
            throw new IllegalArgumentException("limit: " + limit + " (expected: >= 2)");
        }
        headLimit = limit - limit / 2;
        tailLimit = limit / 2;
    }

    /** Takes all of {@code data}. */
    public void add(ByteBuffer data) {
        total += data.remaining();
        int toHead = headClosed ? 0 : Math.min(data.remaining(), headLimit - headLength);
        if (toHead > 0) {
            head = grown(head, headLength, headLength + toHead, headLimit);
            data.get(head, headLength, toHead);
            headLength += toHead;
        }
        if (data.hasRemaining()) {
            addToTail(data);
        }
    }

    /** Notes bytes that were printed and are not there. What was kept at the end no longer borders on what follows, so it goes too. */
    public void skip(long bytes) {
        if (bytes <= 0) {
            return;
        }
        total += bytes;
        headClosed = true;
        tailLength = 0;
        tailEnd = 0;
    }

    public long total() {
        return total;
    }

    /** Bytes that are not there any more, between head and tail. */
    public long dropped() {
        return total - headLength - tailLength;
    }

    public ByteBuffer head() {
        return ByteBuffer.wrap(head, 0, headLength).slice().asReadOnlyBuffer();
    }

    public ByteBuffer tail() {
        byte[] copy = new byte[tailLength];
        int start = Math.floorMod(tailEnd - tailLength, Math.max(1, tail.length));
        int first = Math.min(tailLength, tail.length - start);
        System.arraycopy(tail, start, copy, 0, first);
        System.arraycopy(tail, 0, copy, first, tailLength - first);
        return ByteBuffer.wrap(copy).asReadOnlyBuffer();
    }

    private void addToTail(ByteBuffer data) {
        if (data.remaining() >= tailLimit) {
            data.position(data.limit() - tailLimit);
            tail = tail.length == tailLimit ? tail : new byte[tailLimit];
            data.get(tail);
            tailLength = tailLimit;
            tailEnd = 0;
            return;
        }
        if (tail.length < tailLimit && tailLength + data.remaining() > tail.length) {
            // Not a ring yet, or one about to grow: lay it out from 0 again.
            byte[] kept = new byte[tailLength];
            tail().get(kept);
            tail = grown(kept, tailLength, tailLength + data.remaining(), tailLimit);
            tailEnd = tailLength % tail.length;
        }
        int count = data.remaining();
        int first = Math.min(count, tail.length - tailEnd);
        data.get(tail, tailEnd, first);
        data.get(tail, 0, count - first);
        tailEnd = (tailEnd + count) % tail.length;
        tailLength = Math.min(tail.length, tailLength + count);
    }

    private static byte[] grown(byte[] from, int used, int needed, int limit) {
        if (needed <= from.length) {
            return from;
        }
        byte[] to = new byte[Math.min(limit, Math.max(needed, from.length * 2))];
        System.arraycopy(from, 0, to, 0, used);
        return to;
    }
}
