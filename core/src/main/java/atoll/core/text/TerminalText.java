package atoll.core.text;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * What a person sees in a terminal when text is printed piece by piece: a carriage return goes back to the start of the line and what
 * follows overwrites it, a backspace goes back one character, and "erase line" sequences erase. So a progress bar of a thousand
 * frames is its last frame.
 *
 * <p>Finished lines go to a bounded head and tail. Only the line being printed is kept apart; once it is longer than
 * {@link #MAX_LINE} its beginning counts as finished. Other escape sequences pass unchanged and take part as plain characters.
 * Columns are UTF-16 units; a wide character or one outside the basic plane counts as the units it has, which shows only where
 * something overwrites part of it.
 */
public final class TerminalText {
    static final int MAX_LINE = 256 * 1024;

    private static final long ONES = 0x0101010101010101L;
    private static final long LOW_BITS = 0x7f7f7f7f7f7f7f7fL;
    private static final long HIGH_BITS = 0x8080808080808080L;
    private static final long RETURNS = '\r' * ONES;
    private static final long BACKSPACES = '\b' * ONES;
    private static final long ESCAPES = '\u001b' * ONES;

    private final HeadAndTail finished;
    private final StringBuilder line = new StringBuilder();
    /** Where in the line the next character goes. */
    private int column;
    /** An escape sequence whose end has not come yet; empty otherwise. */
    private final StringBuilder escape = new StringBuilder();

    public TerminalText(int limitBytes) {
        finished = new HeadAndTail(limitBytes);
    }

    /**
     * Prints bytes as they are if that is the same: ASCII without anything that moves the cursor, printed at the end of the line. Of
     * megabytes of output only head and tail are kept, so what is not looked at closer costs nothing but this check.
     *
     * @return false, and nothing is printed, if it is not: decode it and print the text
     */
    public boolean printPlain(ByteBuffer bytes) {
        if (!escape.isEmpty() || column != line.length() || !isPlain(bytes)) {
            return false;
        }
        int lineStart = bytes.limit();
        while (lineStart > bytes.position() && bytes.get(lineStart - 1) != '\n') {
            lineStart--;
        }
        if (lineStart > bytes.position()) {
            commitLine(false);
            finished.add(bytes.slice(bytes.position(), lineStart - bytes.position()));
        }
        byte[] open = new byte[bytes.limit() - lineStart];
        bytes.get(lineStart, open);
        write(new String(open, StandardCharsets.ISO_8859_1), 0, open.length);
        return true;
    }

    /** Eight bytes at a time: each is below 0x80, and none is one of those that {@link #isControl} names but for the newline. */
    private static boolean isPlain(ByteBuffer bytes) {
        int at = bytes.position();
        int end = bytes.limit();
        for (; at + Long.BYTES <= end; at += Long.BYTES) {
            long word = bytes.getLong(at);
            // The high bit of each byte of a term is set if that byte differs; no sum carries over if all bytes are
            // ASCII.
            long fits = ~word
                    & ((word ^ RETURNS) + LOW_BITS)
                    & ((word ^ BACKSPACES) + LOW_BITS)
                    & ((word ^ ESCAPES) + LOW_BITS)
                    & HIGH_BITS;
            if (fits != HIGH_BITS) {
                return false;
            }
        }
        for (; at < end; at++) {
            byte b = bytes.get(at);
            if (b < 0 || (b != '\n' && isControl((char) b))) {
                return false;
            }
        }
        return true;
    }

    public void print(String text) {
        int from = 0;
        int length = text.length();
        while (from < length) {
            if (!escape.isEmpty()) {
                from = continueEscape(text, from);
                continue;
            }
            int to = from;
            while (to < length && !isControl(text.charAt(to))) {
                to++;
            }
            write(text, from, to);
            if (to < length) {
                control(text.charAt(to));
                to++;
            }
            from = to;
        }
    }

    /** Bytes were lost here: the line so far ends, and the hole is kept. */
    public void skip(long bytes) {
        commitLine(false);
        finished.skip(bytes);
    }

    /** Ends the line and returns what is kept. Nothing may be printed afterwards. */
    public HeadAndTail end() {
        if (!escape.isEmpty()) {
            write(escape, 0, escape.length());
            escape.setLength(0);
        }
        commitLine(false);
        return finished;
    }

    private static boolean isControl(char c) {
        return c == '\n' || c == '\r' || c == '\b' || c == '\u001b';
    }

    private void control(char c) {
        switch (c) {
            case '\n' -> commitLine(true);
            case '\r' -> column = 0;
            case '\b' -> column = Math.max(0, column - 1);
            default -> escape.append(c);
        }
    }

    private void write(CharSequence text, int from, int to) {
        int count = to - from;
        if (count == 0) {
            return;
        }
        if (column == line.length()) {
            line.append(text, from, to);
        } else {
            int end = Math.min(line.length(), column + count);
            line.replace(column, end, text.subSequence(from, to).toString());
        }
        column += count;
        if (line.length() > MAX_LINE) {
            shortenLine();
        }
    }

    /** Only the beginning up to the cursor leaves, and never half a character. */
    private void shortenLine() {
        int cut = Math.min(column, line.length() - MAX_LINE / 2);
        if (cut > 0 && Character.isHighSurrogate(line.charAt(cut - 1))) {
            cut--;
        }
        finished.add(ByteBuffer.wrap(line.substring(0, cut).getBytes(StandardCharsets.UTF_8)));
        line.delete(0, cut);
        column -= cut;
    }

    private void commitLine(boolean newline) {
        if (newline) {
            line.append('\n');
        }
        if (!line.isEmpty()) {
            finished.add(ByteBuffer.wrap(line.toString().getBytes(StandardCharsets.UTF_8)));
        }
        line.setLength(0);
        column = 0;
    }

    /** Takes characters of an escape sequence up to its end; returns where plain text goes on. */
    private int continueEscape(String text, int from) {
        for (int i = from; i < text.length(); i++) {
            char c = text.charAt(i);
            boolean second = escape.length() == 1;
            if (isControl(c)) {
                // Not a sequence that we know: let it pass as it came.
                flushEscape();
                return i;
            }
            escape.append(c);
            boolean sequenceGoesOn = second ? c == '[' : c < '@' || c > '~';
            if (!sequenceGoesOn || escape.length() > 64) {
                finishEscape(c);
                return i + 1;
            }
        }
        return text.length();
    }

    private void finishEscape(char last) {
        if (last != 'K' || escape.length() < 3) {
            flushEscape();
            return;
        }
        String parameter = escape.substring(2, escape.length() - 1);
        escape.setLength(0);
        switch (parameter) {
            case "", "0" -> line.setLength(Math.min(line.length(), column));
            case "1", "2" -> {
                int end = parameter.equals("2") ? line.length() : Math.min(line.length(), column);
                line.replace(0, end, " ".repeat(end));
                if (parameter.equals("2")) {
                    line.setLength(column);
                }
            }
            default -> {}
        }
    }

    private void flushEscape() {
        String sequence = escape.toString();
        escape.setLength(0);
        write(sequence, 0, sequence.length());
    }
}
