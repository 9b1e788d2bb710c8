package atoll.core.file;

import atoll.core.AtollException;
import java.nio.ByteBuffer;

/** One step of a batch: an operation, or a small file in or out. */
public sealed interface BatchStep {
    record Do(FileOperation operation) implements BatchStep {}

    record Write(WriteFile file, ByteBuffer content) implements BatchStep {}

    /**
     * Reads a small file whole.
     *
     * @param maxBytes a file that has more fails with {@code REQUEST_TOO_LARGE}
     */
    record Read(String path, int maxBytes) implements BatchStep {
        public static final int MOST = 32 << 20;

        public Read {
            Bounds.check("max_bytes", maxBytes, 1, MOST);
        }
    }

    /** What came of a step. */
    sealed interface Result {
        record Done(FileReply reply) implements Result {}

        record Written(WrittenFile file) implements Result {}

        record Content(FileStat file, ByteBuffer bytes) implements Result {}

        record Failed(AtollException failure) implements Result {}

        /** An earlier step failed, and it was to be stopped then. */
        record Skipped() implements Result {}
    }
}
