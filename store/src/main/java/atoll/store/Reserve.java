package atoll.store;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Room on the disk that is given up once the disk is full: what frees room, a deletion above all, has to be put on record first. It is a
 * file beside the database, made again when there is room. For one thread at a time.
 */
interface Reserve {
    /** Nothing is kept. */
    Reserve NONE = new Reserve() {
        @Override
        public boolean giveUp() {
            return false;
        }

        @Override
        public boolean fill() {
            return true;
        }
    };

    /** Gives it up; false if there is none. */
    boolean giveUp();

    /** Makes it, if it is not there and there is room for it. Returns whether there is nothing left to do. */
    boolean fill();

    /** A file of so many bytes. */
    static Reserve of(Path file, long bytes) {
        return new Ballast(file, bytes);
    }

    /** The file. */
    final class Ballast implements Reserve {
        private static final System.Logger LOG = System.getLogger(Ballast.class.getName());
        /** A disk that has less than so many times its size has no room for it. */
        private static final int ROOM = 4;

        private final Path file;
        private final long bytes;

        private Ballast(Path file, long bytes) {
            this.file = file;
            this.bytes = bytes;
        }

        @Override
        public boolean giveUp() {
            try {
                boolean given = Files.deleteIfExists(file);
                if (given) {
                    LOG.log(
                            System.Logger.Level.WARNING,
                            "the disk is full: " + file + " is given up for what frees room");
                }
                return given;
            } catch (IOException e) {
                LOG.log(System.Logger.Level.ERROR, "the disk is full, and its reserve can't be given up", e);
                return false;
            }
        }

        @Override
        public boolean fill() {
            try {
                if (Files.exists(file) && Files.size(file) == bytes) {
                    return true;
                }
                Path folder = file.toAbsolutePath().getParent();
                // Asked with every write while there is none: the store of a path would read the table of mounts each
                // time.
                if (folder == null || folder.toFile().getUsableSpace() / ROOM < bytes) {
                    return false;
                }
                write();
                return true;
            } catch (IOException e) {
                LOG.log(System.Logger.Level.INFO, "no reserve for a full disk: " + e);
                return false;
            }
        }

        /** Not by its length alone: a file with holes takes no room. */
        private void write() throws IOException {
            byte[] zeros = new byte[1 << 16];
            try (OutputStream out = Files.newOutputStream(file)) {
                for (long left = bytes; left > 0; left -= zeros.length) {
                    out.write(zeros, 0, (int) Math.min(left, zeros.length));
                }
            } catch (IOException e) {
                boolean removed = Files.deleteIfExists(file);
                assert removed || !Files.exists(file);
                throw e;
            }
        }
    }
}
