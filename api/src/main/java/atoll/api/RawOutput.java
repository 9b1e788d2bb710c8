package atoll.api;

import atoll.core.execution.OutputReader;
import atoll.http.ByteStream;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;

/** Raw output as the body of an answer, with the number of bytes that are missing in a trailer. */
final class RawOutput {
    private static final String GAP_BYTES = "X-Atoll-Gap-Bytes";

    private RawOutput() {}

    static void write(Exchange exchange, OutputReader reader, boolean follow) throws IOException, InterruptedException {
        var gaps = new AtomicLong();
        exchange.responseTrailer(GAP_BYTES, gaps::toString);
        ByteStream bytes = exchange.stream(200, "application/octet-stream");
        if (follow) {
            // The reader learns that the request was taken before the first byte is printed.
            bytes.flush();
        }
        Optional<OutputReader.Piece> piece = reader.next();
        while (piece.isPresent()) {
            gaps.addAndGet(piece.get().gapBytes());
            bytes.write(piece.get().data());
            piece = reader.next();
        }
        bytes.finish();
    }
}
