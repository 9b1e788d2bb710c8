package atoll.core.template;

import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Writes small tars (POSIX ustar) in memory. The same files give the same bytes. */
final class Tar {
    private static final int BLOCK = 512;

    private final List<byte[]> parts = new ArrayList<>();

    /** Names have at most 100 bytes. */
    Tar file(String name, byte[] content, int mode) {
        byte[] header = new byte[BLOCK];
        put(header, 0, name);
        number(header, 100, 8, mode);
        number(header, 108, 8, 0);
        number(header, 116, 8, 0);
        number(header, 124, 12, content.length);
        // The same time always, so that the same files are the same build.
        number(header, 136, 12, 0);
        put(header, 148, "        ");
        header[156] = '0';
        put(header, 257, "ustar");
        put(header, 263, "00");
        long sum = 0;
        for (byte b : header) {
            sum += b & 0xff;
        }
        number(header, 148, 7, sum);
        parts.add(header);
        parts.add(content);
        parts.add(new byte[(BLOCK - content.length % BLOCK) % BLOCK]);
        return this;
    }

    InputStream stream() {
        List<byte[]> all = new ArrayList<>(parts);
        all.add(new byte[2 * BLOCK]);
        return new Parts(all);
    }

    private static void put(byte[] header, int at, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        System.arraycopy(bytes, 0, header, at, bytes.length);
    }

    /** Octal digits and an end. */
    private static void number(byte[] header, int at, int width, long value) {
        put(header, at, String.format("%0" + (width - 1) + "o", value));
        header[at + width - 1] = 0;
    }

    /** Several arrays one after another. */
    private static final class Parts extends InputStream {
        private final List<byte[]> parts;
        private int part;
        private int at;

        Parts(List<byte[]> parts) {
            this.parts = parts;
        }

        private boolean fill() {
            while (part < parts.size() && at == parts.get(part).length) {
                part++;
                at = 0;
            }
            return part < parts.size();
        }

        @Override
        public int read() {
            return fill() ? parts.get(part)[at++] & 0xff : -1;
        }

        @Override
        public int read(byte[] into, int from, int most) {
            if (most == 0) {
                return 0;
            }
            if (!fill()) {
                return -1;
            }
            int count = Math.min(most, parts.get(part).length - at);
            System.arraycopy(parts.get(part), at, into, from, count);
            at += count;
            return count;
        }
    }
}
