package atoll.core.process;

import atoll.core.execution.StandardStream;
import java.nio.ByteBuffer;
import java.time.Instant;

/** One thing a process says, numbered from 1 without holes. {@link Ended} is always the last, after the last byte. */
public sealed interface ProcessUpdate {
    long seq();

    record Started(long seq, int pid, Instant at) implements ProcessUpdate {}

    /** Raw bytes of one stream, at most 64 KiB. A chunk may end in the middle of a character. With a terminal all is stdout. */
    record Output(long seq, StandardStream stream, long offset, ByteBuffer data) implements ProcessUpdate {
        public Output {
            data = data.asReadOnlyBuffer();
        }

        /** The bytes, read-only, with a position of their own for each call. */
        @Override
        public ByteBuffer data() {
            return data.duplicate();
        }
    }

    /** {@code bytes} of a stream from {@code offset} on were dropped, since what is kept is bounded. */
    record Gap(long seq, StandardStream stream, long offset, long bytes) implements ProcessUpdate {}

    record Ended(long seq, ProcessRecord process) implements ProcessUpdate {}
}
