package atoll.http;

import java.io.IOException;
import java.nio.ByteBuffer;

/** An answer written piece by piece. Each write waits until the connection took it, so a slow reader slows the writer and nothing piles up. */
public final class ByteStream {
    private final Exchange exchange;

    ByteStream(Exchange exchange) {
        this.exchange = exchange;
    }

    /** Writes and flushes, 64 KiB at a time; the buffer is free again on return. */
    public void write(ByteBuffer bytes) throws IOException, InterruptedException {
        ByteBuffer rest = bytes.duplicate();
        while (rest.remaining() > Exchange.PIECE) {
            exchange.send(false, rest.slice(rest.position(), Exchange.PIECE));
            rest.position(rest.position() + Exchange.PIECE);
        }
        exchange.send(false, rest);
    }

    /** Sends the headers, if nothing was sent yet. */
    public void flush() throws IOException, InterruptedException {
        exchange.send(false, ByteBuffer.allocate(0));
    }

    /** The regular end of the answer. A stream whose handler throws before it is cut, which the reader can tell. */
    public void finish() throws IOException, InterruptedException {
        exchange.end();
    }
}
