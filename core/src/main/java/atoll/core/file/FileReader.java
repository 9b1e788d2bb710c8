package atoll.core.file;

import java.nio.ByteBuffer;
import java.util.Optional;

/** A file, or a folder's archive, being read at the reader's pace: what is not taken is held back inside the sandbox. For one thread. */
public interface FileReader extends AutoCloseable {
    /** What is being read, as it was at the beginning. */
    FileStat file();

    /** Waits for the next bytes, at most 256 KiB; empty at the end. A file that gets shorter meanwhile fails with {@code FILE_CONFLICT}. */
    Optional<ByteBuffer> next() throws InterruptedException;

    /** Breaks it off, if it has not ended. */
    @Override
    void close();
}
