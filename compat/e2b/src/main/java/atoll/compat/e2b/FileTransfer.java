package atoll.compat.e2b;

import atoll.core.file.FileReader;
import atoll.core.file.FileStat;
import atoll.core.file.FileWriter;
import atoll.core.file.Files;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;
import atoll.http.BodyStream;
import atoll.http.ByteRange;
import atoll.http.ByteStream;
import atoll.http.Exchange;
import atoll.http.MultipartReader;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import java.util.zip.ZipException;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/** {@code /files} of a sandbox: downloads with ranges and gzip, uploads as forms or as they are. */
final class FileTransfer {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final String METADATA = "X-Metadata-";

    private final Files files;

    FileTransfer(Files files) {
        this.files = files;
    }

    /** {@code user} is whose rights count. */
    void serve(SandboxRequest request, String user) throws IOException, InterruptedException {
        switch (request.exchange().method()) {
            case "GET", "HEAD" -> read(request, user);
            case "POST" -> write(request, user);
            default -> ApiErrors.answer(request.exchange(), 405, "only GET and POST");
        }
    }

    private void read(SandboxRequest request, String user) throws IOException, InterruptedException {
        Exchange exchange = request.exchange();
        String path = SandboxRequest.path(exchange.query("path"));
        boolean gzip = acceptsGzip(exchange);
        FileStat file;
        Optional<ByteRange> range = Optional.empty();
        try (FileReader probe = files.read(request.caller(), request.sandbox(), user, ReadFile.whole(path))) {
            file = probe.file();
            if (!gzip) {
                range = exchange.range(file.size(), "");
            }
            exchange.responseHeader("Content-Disposition", disposition(file.name()));
            exchange.responseHeader("Vary", "Accept-Encoding");
            if (range.isEmpty()) {
                send(exchange, probe, gzip, 200, gzip ? -1 : file.size());
                return;
            }
        }
        ReadFile part = new ReadFile(path, range.get().first(), range.get().length(), Optional.empty());
        try (FileReader reader = files.read(request.caller(), request.sandbox(), user, part)) {
            send(exchange, reader, false, 206, range.get().length());
        }
    }

    private static boolean acceptsGzip(Exchange exchange) {
        String accepted = exchange.header("Accept-Encoding");
        // Only where it is all that is asked for: a client that also takes the bytes as they are gets them as they are.
        return accepted != null && accepted.strip().equalsIgnoreCase("gzip") && exchange.header("Range") == null;
    }

    private static String disposition(String name) {
        var plain = new StringBuilder();
        var encoded = new StringBuilder();
        for (byte b : name.getBytes(StandardCharsets.UTF_8)) {
            char c = (char) (b & 0xff);
            boolean simple = c > 0x20 && c < 0x7f && "\"\\%;'()<>@,:/[]?={}*".indexOf(c) < 0;
            plain.append(simple || c == ' ' ? c : '_');
            encoded.append(simple ? String.valueOf(c) : "%%%02X".formatted((int) c));
        }
        return "inline; filename=\"" + plain + "\"; filename*=UTF-8''" + encoded;
    }

    private static void send(Exchange exchange, FileReader reader, boolean gzip, int status, long length)
            throws IOException, InterruptedException {
        if (gzip) {
            exchange.responseHeader("Content-Encoding", "gzip");
        } else if (length >= 0) {
            exchange.responseHeader("Content-Length", Long.toString(length));
        }
        ByteStream out = exchange.stream(status, "application/octet-stream");
        var packed = new ByteArrayOutputStream();
        try (var packer = gzip ? new GZIPOutputStream(packed, 8192) : null) {
            Optional<ByteBuffer> piece = reader.next();
            while (piece.isPresent()) {
                if (packer == null) {
                    out.write(piece.get());
                } else {
                    byte[] bytes = new byte[piece.get().remaining()];
                    piece.get().get(bytes);
                    packer.write(bytes);
                    flush(packed, out);
                }
                piece = reader.next();
            }
            if (packer != null) {
                packer.finish();
                flush(packed, out);
            }
        }
        out.finish();
    }

    private static void flush(ByteArrayOutputStream packed, ByteStream out) throws IOException, InterruptedException {
        if (packed.size() > 0) {
            out.write(ByteBuffer.wrap(packed.toByteArray()));
            packed.reset();
        }
    }

    private void write(SandboxRequest request, String user) throws IOException, InterruptedException {
        Exchange exchange = request.exchange();
        String type = exchange.header("Content-Type");
        ArrayNode written = NODES.arrayNode();
        if (type != null && type.toLowerCase(Locale.ROOT).startsWith("multipart/")) {
            writeForm(request, user, written);
        } else {
            BodyStream body = exchange.bodyStream();
            String encoding = exchange.header("Content-Encoding");
            boolean gzip = encoding != null && encoding.strip().equalsIgnoreCase("gzip");
            OptionalLong length = gzip ? OptionalLong.empty() : body.announcedLength();
            Pieces pieces = gzip ? new Unzipped(body::next) : body::next;
            written.add(write(request, user, SandboxRequest.path(exchange.query("path")), length, pieces));
        }
        exchange.json(200, written);
    }

    private void writeForm(SandboxRequest request, String user, ArrayNode written)
            throws IOException, InterruptedException {
        String fixed = request.exchange().query("path");
        MultipartReader form = MultipartReader.of(request.exchange());
        List<String> used = new ArrayList<>();
        Optional<MultipartReader.Part> part = form.next();
        while (part.isPresent()) {
            if (part.get().name().equals("file")) {
                String path = SandboxRequest.path(
                        fixed != null && !fixed.isEmpty()
                                ? fixed
                                : part.get().fileName().orElse(null));
                if (used.contains(path)) {
                    throw Text.invalid("path: " + path + " comes twice");
                }
                used.add(path);
                written.add(write(request, user, path, OptionalLong.empty(), form::content));
            }
            part = form.next();
        }
        if (written.isEmpty()) {
            throw Text.invalid("the form has no part named file");
        }
    }

    private interface Pieces {
        Optional<ByteBuffer> next() throws IOException, InterruptedException;
    }

    private ObjectNode write(SandboxRequest request, String user, String path, OptionalLong length, Pieces pieces)
            throws IOException, InterruptedException {
        Map<String, String> attributes = attributes(request);
        var what = new WriteFile(
                path, WriteFile.Mode.REPLACE, 0, OptionalInt.empty(), true, Optional.empty(), attributes, length);
        FileStat file;
        try (FileWriter writer = files.write(request.caller(), request.sandbox(), user, what)) {
            Optional<ByteBuffer> piece = pieces.next();
            while (piece.isPresent()) {
                writer.write(piece.get());
                piece = pieces.next();
            }
            file = writer.commit().file();
        }
        ObjectNode told =
                NODES.objectNode().put("name", file.name()).put("type", "file").put("path", file.path());
        ObjectNode metadata = NODES.objectNode();
        attributes.forEach((name, value) -> metadata.put(name.substring(FileViews.ATTRIBUTE.length()), value));
        if (!metadata.isEmpty()) {
            told.set("metadata", metadata);
        }
        return told;
    }

    private static Map<String, String> attributes(SandboxRequest request) {
        Map<String, String> attributes = new HashMap<>();
        request.exchange()
                .headersBeginningWith(METADATA)
                .forEach((name, value) -> attributes.put(FileViews.ATTRIBUTE + name.toLowerCase(Locale.ROOT), value));
        return attributes;
    }

    /** Unpacks what comes packed; what it holds at a time is bounded, however much it unpacks to. */
    private static final class Unzipped implements Pieces {
        private static final int PIECE = FileWriter.LARGEST_PIECE;

        private final InputStream packed;
        private @Nullable InputStream unpacked;

        Unzipped(Pieces pieces) {
            this.packed = new Joined(pieces);
        }

        @Override
        public Optional<ByteBuffer> next() throws IOException {
            try {
                InputStream in = unpacked;
                if (in == null) {
                    in = new GZIPInputStream(packed, 8192);
                    unpacked = in;
                }
                byte[] bytes = in.readNBytes(PIECE);
                return bytes.length == 0 ? Optional.empty() : Optional.of(ByteBuffer.wrap(bytes));
            } catch (ZipException | EOFException e) {
                throw Text.invalid("the body is no gzip: " + e.getMessage());
            }
        }
    }

    /** Pieces as a stream. */
    private static final class Joined extends InputStream {
        private final Pieces pieces;
        private ByteBuffer held = ByteBuffer.allocate(0);

        Joined(Pieces pieces) {
            this.pieces = pieces;
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
            if (length == 0) {
                return 0;
            }
            try {
                while (!held.hasRemaining()) {
                    Optional<ByteBuffer> piece = pieces.next();
                    if (piece.isEmpty()) {
                        return -1;
                    }
                    held = piece.get();
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new InterruptedIOException("interrupted while the body came");
            }
            int count = Math.min(length, held.remaining());
            held.get(bytes, offset, count);
            return count;
        }
    }
}
