package atoll.core.execution;

import java.nio.ByteBuffer;

/** One thing an execution says while it runs, in order. {@link Finished} is always the last. */
public sealed interface ExecutionUpdate {

    /** Raw bytes of one stream, at most 64 KiB. A chunk may end in the middle of a character: {@code Utf8Joiner} makes text of them. */
    record Output(StandardStream stream, ByteBuffer data, long offset) implements ExecutionUpdate {
        public Output {
            data = data.asReadOnlyBuffer();
        }

        /** The bytes, read-only, with a position of their own for each call. */
        @Override
        public ByteBuffer data() {
            return data.duplicate();
        }
    }

    /** A displayed value. */
    record Result(ExecutionResult result) implements ExecutionUpdate {}

    /** {@code bytes} of a stream from {@code offset} on were dropped: the caller was slower than the program, and its spool is bounded. */
    record Gap(StandardStream stream, long offset, long bytes) implements ExecutionUpdate {}

    /** The end, with everything summed up. */
    record Finished(ExecutionOutcome outcome) implements ExecutionUpdate {}
}
