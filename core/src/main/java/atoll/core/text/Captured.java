package atoll.core.text;

import atoll.core.execution.CapturedText;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** Turns kept bytes into text for a reply or a record. */
public final class Captured {
    private Captured() {}

    /** The text of what is kept, with a line where bytes are missing; {@code total} is what the program printed, in bytes. */
    public static CapturedText text(HeadAndTail kept, long total, boolean trimFinalNewline) {
        Utf8Joiner joiner = new Utf8Joiner();
        ByteBuffer head = kept.head();
        ByteBuffer tail = kept.tail();
        long dropped = kept.dropped();
        StringBuilder text = new StringBuilder(head.remaining() + tail.remaining() + 64);
        if (dropped == 0) {
            text.append(joiner.decode(head)).append(joiner.decode(tail)).append(joiner.end());
        } else {
            // The cut may lie inside a character: its halves are no broken text of the program's, so they count as left
            // out.
            int headCut = incompleteAtEnd(head);
            int tailCut = continuationsAtStart(tail);
            head.limit(head.limit() - headCut);
            tail.position(tail.position() + tailCut);
            text.append(joiner.decode(head)).append(joiner.end());
            text.append("\n[… ").append(dropped + headCut + tailCut).append(" bytes left out …]\n");
            text.append(joiner.decode(tail)).append(joiner.end());
        }
        if (trimFinalNewline && !text.isEmpty() && text.charAt(text.length() - 1) == '\n') {
            text.setLength(text.length() - 1);
        }
        return new CapturedText(text.toString(), total, dropped > 0);
    }

    /** The same text, at most {@code limitBytes} long, cut in the middle once more if need be. */
    public static CapturedText shortened(CapturedText text, int limitBytes) {
        if (text.text().length() <= limitBytes / 3) {
            return text;
        }
        ByteBuffer bytes = StandardCharsets.UTF_8.encode(text.text());
        if (bytes.remaining() <= limitBytes) {
            return text;
        }
        HeadAndTail kept = new HeadAndTail(limitBytes);
        kept.add(bytes);
        CapturedText cut = text(kept, text.totalBytes(), false);
        return new CapturedText(cut.text(), text.totalBytes(), true);
    }

    private static int incompleteAtEnd(ByteBuffer bytes) {
        int end = bytes.limit();
        for (int back = 1; back <= 4 && end - back >= bytes.position(); back++) {
            int b = bytes.get(end - back) & 0xff;
            if ((b & 0xc0) == 0x80) {
                continue;
            }
            int length = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : b >= 0xc0 ? 2 : 1;
            return length > back ? back : 0;
        }
        return 0;
    }

    private static int continuationsAtStart(ByteBuffer bytes) {
        int count = 0;
        while (count < 3
                && bytes.position() + count < bytes.limit()
                && (bytes.get(bytes.position() + count) & 0xc0) == 0x80) {
            count++;
        }
        return count;
    }
}
