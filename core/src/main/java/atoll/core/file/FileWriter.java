package atoll.core.file;

import java.nio.ByteBuffer;

/** A file, or an archive, on its way into a sandbox. Nothing of it counts before {@link #commit}. For one thread. */
public interface FileWriter extends AutoCloseable {
    /** At most this many bytes go in one piece. */
    int LARGEST_PIECE = 256 << 10;

    /** Sends on at the sandbox's pace. The buffer, of at most {@link #LARGEST_PIECE}, is given away: whoever filled it must leave it alone. */
    void write(ByteBuffer piece) throws InterruptedException;

    /** Everything has been written: makes it so. */
    WrittenFile commit() throws InterruptedException;

    /** Without a commit before, breaks it off, and nothing is left of it. */
    @Override
    void close();
}
