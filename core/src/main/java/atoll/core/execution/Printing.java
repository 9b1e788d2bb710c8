package atoll.core.execution;

import atoll.core.text.Captured;
import atoll.core.text.HeadAndTail;
import atoll.core.text.TerminalText;
import atoll.core.text.Utf8Joiner;
import java.nio.ByteBuffer;

/** Sums up what a program prints into text, in bounded memory. Not for several threads. */
public final class Printing {
    /** Of each stream, and of the terminal's text, in a reply. */
    static final int REPLY_LIMIT = 1024 * 1024;

    private final HeadAndTail stdout = new HeadAndTail(REPLY_LIMIT);
    private final HeadAndTail stderr = new HeadAndTail(REPLY_LIMIT);
    private final Utf8Joiner stdoutText = new Utf8Joiner();
    private final Utf8Joiner stderrText = new Utf8Joiner();
    private final TerminalText terminal = new TerminalText(REPLY_LIMIT);
    private boolean lineOpen;

    /** Bytes of a stream, all of them. */
    public void add(StandardStream stream, ByteBuffer data) {
        boolean out = stream == StandardStream.STDOUT;
        (out ? stdout : stderr).add(data.duplicate());
        if (!data.hasRemaining()) {
            return;
        }
        Utf8Joiner joiner = out ? stdoutText : stderrText;
        if (!joiner.isOpen() && terminal.printPlain(data)) {
            lineOpen = data.get(data.limit() - 1) != '\n';
        } else {
            print(joiner.decode(data.duplicate()));
        }
    }

    /** Bytes of a stream that are not there any more. */
    public void skip(StandardStream stream, long bytes) {
        boolean out = stream == StandardStream.STDOUT;
        (out ? stdout : stderr).skip(bytes);
        print((out ? stdoutText : stderrText).end());
        terminal.skip(bytes);
        lineOpen = false;
    }

    /** Text that only a person at a terminal would see. */
    void printOnOwnLine(String text) {
        if (lineOpen) {
            print("\n");
        }
        print(text.endsWith("\n") ? text : text + "\n");
    }

    /** No more bytes come. */
    void endStreams() {
        print(stdoutText.end());
        print(stderrText.end());
    }

    /** Ends it; {@code stdoutBytes} and {@code stderrBytes} are what the program printed, where that is known to be more. */
    public PrintedText end(long stdoutBytes, long stderrBytes) {
        endStreams();
        HeadAndTail seen = terminal.end();
        CapturedText out = Captured.text(stdout, Math.max(stdoutBytes, stdout.total()), false);
        CapturedText err = Captured.text(stderr, Math.max(stderrBytes, stderr.total()), false);
        CapturedText output = Captured.text(seen, out.totalBytes() + err.totalBytes(), true);
        return new PrintedText(output, out, err);
    }

    private void print(String text) {
        if (!text.isEmpty()) {
            lineOpen = text.charAt(text.length() - 1) != '\n';
            terminal.print(text);
        }
    }
}
