package atoll.api;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * Cuts the bytes of one stream into pieces that are whole UTF-8 and pieces that are not. A character that is split over chunks is kept back until its rest
 * comes, so text is never broken; bytes that belong to no character are handed on as they are. Nothing is lost or changed: the pieces in their order are the
 * stream. One per stream; not for several threads.
 */
final class Utf8Pieces {
    private static final int MAX_CHUNK = 64 << 10;

    /** Takes the pieces; the array is only theirs during the call. */
    interface Sink {
        void text(byte[] utf8, int from, int to) throws IOException, InterruptedException;

        void binary(byte[] bytes, int from, int to) throws IOException, InterruptedException;
    }

    /** What is kept back from earlier chunks, then the chunk. */
    private byte[] bytes = new byte[0];

    private int kept;

    void chunk(ByteBuffer data, Sink sink) throws IOException, InterruptedException {
        while (data.hasRemaining()) {
            int size = Math.min(data.remaining(), MAX_CHUNK);
            if (bytes.length < kept + size) {
                byte[] larger = new byte[Math.max(kept + size, bytes.length * 2)];
                System.arraycopy(bytes, 0, larger, 0, kept);
                bytes = larger;
            }
            data.get(bytes, kept, size);
            cut(kept + size, sink);
        }
    }

    /** The beginning of a character that is kept back: at most 3 bytes. */
    byte[] held() {
        return Arrays.copyOf(bytes, kept);
    }

    /** Goes on where another, with these {@link #held}, ended. */
    void hold(byte[] beginning) {
        bytes = beginning.clone();
        kept = beginning.length;
    }

    /** The stream has a hole here or is over: what is kept back will never be whole. */
    void end(Sink sink) throws IOException, InterruptedException {
        if (kept > 0) {
            sink.binary(bytes, 0, kept);
            kept = 0;
        }
    }

    private void cut(int length, Sink sink) throws IOException, InterruptedException {
        int valid = Utf8.validUntil(bytes, 0, length);
        int tail = Utf8.incompleteAt(bytes, valid, length);
        if (valid > 0) {
            sink.text(bytes, 0, valid);
        }
        if (tail > valid) {
            sink.binary(bytes, valid, tail);
        }
        kept = length - tail;
        System.arraycopy(bytes, tail, bytes, 0, kept);
    }
}
