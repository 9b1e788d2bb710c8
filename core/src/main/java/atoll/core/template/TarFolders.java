package atoll.core.template;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Several tars as one, each in a folder of its own, written anew while it is read: contents pass through, and of what stands before each of them
 * only names, links and sizes are changed. Reads what ustar, pax and GNU's tar write; names are written by pax where they are long or no ASCII.
 */
final class TarFolders extends InputStream {
    private static final int BLOCK = 512;
    /** Of one entry's names and notes. */
    private static final long MOST_NOTES = 1 << 20;

    /** A tar and the folder that it is to lie in. */
    record Part(String folder, InputStream tar) {}

    /** What was given is none. */
    static final class NoTarException extends IOException {
        private static final long serialVersionUID = 1;

        NoTarException(String message) {
            super(message);
        }
    }

    private final Iterator<Part> rest;
    private Part part;
    private byte[] ready = new byte[0];
    private int at;
    /** Of the entry whose content is being passed on, with what fills its last block. */
    private long content;

    private boolean ended;

    /** Does not close the parts. */
    TarFolders(List<Part> parts) {
        rest = parts.iterator();
        part = new Part("", InputStream.nullInputStream());
        next();
    }

    private void next() {
        if (rest.hasNext()) {
            part = rest.next();
        } else {
            ended = true;
            show(new byte[2 * BLOCK]);
        }
    }

    private void show(byte[] bytes) {
        ready = bytes;
        at = 0;
    }

    @Override
    public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] into, int from, int most) throws IOException {
        if (most == 0) {
            return 0;
        }
        while (at == ready.length) {
            if (content > 0) {
                int count = part.tar().read(into, from, (int) Math.min(most, content));
                if (count < 0) {
                    throw cut();
                }
                content -= count;
                return count;
            }
            if (ended) {
                return -1;
            }
            entry();
        }
        int count = Math.min(most, ready.length - at);
        System.arraycopy(ready, at, into, from, count);
        at += count;
        return count;
    }

    private NoTarException cut() {
        return new NoTarException("it ends within a file (expected: a whole tar)");
    }

    /** Reads what stands before the next content, and shows it as it is to be. */
    private void entry() throws IOException {
        Map<String, String> notes = new LinkedHashMap<>();
        while (true) {
            byte[] header = part.tar().readNBytes(BLOCK);
            if (header.length == 0 || isZero(header)) {
                next();
                return;
            }
            if (header.length < BLOCK) {
                throw cut();
            }
            checkSum(header);
            switch (header[156]) {
                case 'x' -> pax(notes, body(header));
                case 'g' -> body(header);
                case 'L' -> notes.put("path", ended(body(header)));
                case 'K' -> notes.put("linkpath", ended(body(header)));
                default -> {
                    show(moved(header, notes));
                    return;
                }
            }
        }
    }

    private byte[] moved(byte[] header, Map<String, String> notes) throws IOException {
        long size = notes.containsKey("size") ? decimal(notes.get("size")) : number(header, 124, 12);
        // Links, folders and devices have no content, whatever stands there.
        boolean hasContent = header[156] < '1' || header[156] > '6';
        content = hasContent ? (size + BLOCK - 1) / BLOCK * BLOCK : 0;
        String prefix = isUstar(header) ? text(header, 345, 155) : "";
        String own = text(header, 0, 100);
        String name = notes.getOrDefault("path", prefix.isEmpty() ? own : prefix + "/" + own);
        String link = notes.getOrDefault("linkpath", text(header, 157, 100));
        String path = below(name);
        String target = header[156] == '1' ? below(link) : link;

        Map<String, String> pax = new LinkedHashMap<>(notes);
        pax.remove("path");
        pax.remove("linkpath");
        pax.remove("size");
        byte[] made = header.clone();
        for (int i = 345; i < 500; i++) {
            made[i] = 0;
        }
        field(made, 0, 100, path, "path", pax);
        field(made, 157, 100, target, "linkpath", pax);
        if (!hasContent) {
            octal(made, 124, 12, 0);
        } else if (size < 1L << 33) {
            octal(made, 124, 12, size);
        } else {
            octal(made, 124, 12, 0);
            pax.put("size", Long.toString(size));
        }
        put(made, 257, "ustar\0" + "00");
        sum(made);
        if (pax.isEmpty()) {
            return made;
        }
        byte[] records = records(pax);
        byte[] before = new byte[BLOCK];
        put(before, 0, "pax");
        octal(before, 100, 8, 0644);
        octal(before, 108, 8, 0);
        octal(before, 116, 8, 0);
        octal(before, 124, 12, records.length);
        octal(before, 136, 12, 0);
        before[156] = 'x';
        put(before, 257, "ustar\0" + "00");
        sum(before);
        int filled = (records.length + BLOCK - 1) / BLOCK * BLOCK;
        byte[] all = Arrays.copyOf(before, BLOCK + filled + BLOCK);
        System.arraycopy(records, 0, all, BLOCK, records.length);
        System.arraycopy(made, 0, all, BLOCK + filled, BLOCK);
        return all;
    }

    private String below(String name) {
        String plain = name;
        while (plain.startsWith("/") || plain.startsWith("./")) {
            plain = plain.substring(plain.startsWith("/") ? 1 : 2);
        }
        return plain.isEmpty() || plain.equals(".") ? part.folder() + "/" : part.folder() + "/" + plain;
    }

    private static void field(byte[] header, int at, int width, String text, String name, Map<String, String> pax) {
        for (int i = at; i < at + width; i++) {
            header[i] = 0;
        }
        if (text.length() <= width && text.chars().allMatch(c -> c < 0x80)) {
            put(header, at, text);
        } else {
            put(header, at, name);
            pax.put(name, text);
        }
    }

    /** What notes or a long name hold. */
    private byte[] body(byte[] header) throws IOException {
        long size = number(header, 124, 12);
        if (size > MOST_NOTES) {
            throw new NoTarException("an entry has notes of " + size + " bytes (expected: at most " + MOST_NOTES + ")");
        }
        byte[] body = part.tar().readNBytes((int) ((size + BLOCK - 1) / BLOCK * BLOCK));
        if (body.length < size) {
            throw cut();
        }
        byte[] exact = new byte[(int) size];
        System.arraycopy(body, 0, exact, 0, exact.length);
        return exact;
    }

    /** Records of the form {@code LENGTH NAME=VALUE\n}. */
    private static void pax(Map<String, String> notes, byte[] body) throws IOException {
        int at = 0;
        while (at < body.length) {
            int space = at;
            while (space < body.length && body[space] != ' ') {
                space++;
            }
            long length = decimal(new String(body, at, space - at, StandardCharsets.US_ASCII));
            if (length <= space - at + 1L || length > body.length - at) {
                throw new NoTarException("an entry's notes are damaged (expected: pax records)");
            }
            String record = new String(body, space + 1, at + (int) length - space - 2, StandardCharsets.UTF_8);
            int equals = record.indexOf('=');
            if (equals < 1) {
                throw new NoTarException("an entry's notes are damaged (expected: NAME=VALUE)");
            }
            notes.put(record.substring(0, equals), record.substring(equals + 1));
            at += (int) length;
        }
    }

    private static byte[] records(Map<String, String> pax) {
        StringBuilder all = new StringBuilder();
        pax.forEach((name, value) -> {
            String text = " " + name + "=" + value + "\n";
            int bytes = text.getBytes(StandardCharsets.UTF_8).length;
            // The length counts its own digits.
            int length = bytes + 1;
            while (Integer.toString(length).length() + bytes != length) {
                length = Integer.toString(length).length() + bytes;
            }
            all.append(length).append(text);
        });
        return all.toString().getBytes(StandardCharsets.UTF_8);
    }

    private static boolean isZero(byte[] block) {
        for (byte b : block) {
            if (b != 0) {
                return false;
            }
        }
        return true;
    }

    private static boolean isUstar(byte[] header) {
        return text(header, 257, 6).equals("ustar");
    }

    private static String ended(byte[] text) {
        int length = 0;
        while (length < text.length && text[length] != 0) {
            length++;
        }
        return new String(text, 0, length, StandardCharsets.UTF_8);
    }

    private static String text(byte[] header, int at, int width) {
        int length = 0;
        while (length < width && header[at + length] != 0) {
            length++;
        }
        return new String(header, at, length, StandardCharsets.UTF_8);
    }

    /** Octal digits, or with the highest bit set a binary number. */
    private static long number(byte[] header, int at, int width) throws IOException {
        if ((header[at] & 0x80) != 0) {
            long value = header[at] & 0x7f;
            for (int i = at + 1; i < at + width; i++) {
                if (value >>> 47 != 0) {
                    throw new NoTarException("an entry is too large (expected: less than 2^55 bytes)");
                }
                value = (value << 8) | (header[i] & 0xff);
            }
            return value;
        }
        String digits = text(header, at, width).strip();
        try {
            return digits.isEmpty() ? 0 : Long.parseLong(digits, 8);
        } catch (NumberFormatException _) {
            throw new NoTarException("an entry's size is no number (expected: a tar)");
        }
    }

    private static long decimal(String text) throws IOException {
        try {
            long value = Long.parseLong(text);
            if (value >= 0 && value >>> 55 == 0) {
                return value;
            }
        } catch (NumberFormatException _) {
            // Told below.
        }
        throw new NoTarException("an entry's notes are damaged (expected: a number)");
    }

    private static void checkSum(byte[] header) throws IOException {
        long said = number(header, 148, 8);
        if (said != total(header)) {
            throw new NoTarException("it is none: a header's checksum is wrong (expected: a tar)");
        }
    }

    private static long total(byte[] header) {
        long total = 0;
        for (int i = 0; i < BLOCK; i++) {
            total += i >= 148 && i < 156 ? ' ' : header[i] & 0xff;
        }
        return total;
    }

    private static void sum(byte[] header) {
        put(header, 148, String.format("%06o", total(header)));
        header[154] = 0;
        header[155] = ' ';
    }

    private static void put(byte[] header, int at, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        System.arraycopy(bytes, 0, header, at, bytes.length);
    }

    private static void octal(byte[] header, int at, int width, long value) {
        put(header, at, String.format("%0" + (width - 1) + "o", value));
        header[at + width - 1] = 0;
    }
}
