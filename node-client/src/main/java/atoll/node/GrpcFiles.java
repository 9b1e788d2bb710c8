package atoll.node;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReader;
import atoll.core.file.FileReply;
import atoll.core.file.FileStat;
import atoll.core.file.FileWriter;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;
import atoll.core.file.WrittenFile;
import atoll.core.node.NodeFiles;
import atoll.core.node.NodeStream;
import atoll.proto.engine.v1.EngineGrpc;
import atoll.proto.engine.v1.FileCall;
import atoll.proto.engine.v1.ReadFileCall;
import atoll.proto.engine.v1.WatchFilesCall;
import atoll.proto.engine.v1.WriteFileCall;
import atoll.proto.file.v1.FilePiece;
import atoll.proto.file.v1.WatchFilesRequest;
import atoll.proto.file.v1.WriteFileReply;
import atoll.proto.file.v1.WriteFileRequest;
import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/** The engine's file calls. Data is handed over, not copied, and each stream holds at most about a MiB. */
final class GrpcFiles implements NodeFiles {
    /** Removing or copying a large tree takes its time. */
    private static final int OPERATION_SECONDS = 600;
    /** Pieces of a file on their way: each has up to 256 KiB. */
    private static final int PIECES = 4;

    /**
     * Data that the engine passes to a sandbox as one frame. Buffers of 64 KiB, as the network has them, are a little more: each would
     * become two frames, and two writes inside.
     */
    static final int FRAME = (64 << 10) - 64;

    private static final int EVENTS = 64;

    private final Channel channel;
    /** Looks at every failure before it is thrown. */
    private final UnaryOperator<AtollException> noticed;

    GrpcFiles(Channel channel, UnaryOperator<AtollException> noticed) {
        this.channel = channel;
        this.noticed = noticed;
    }

    private AtollException failure(Status status) {
        return noticed.apply(FileStatuses.failure(status));
    }

    @Override
    public FileReply file(BoxId box, String user, FileOperation operation) {
        FileCall call = FileCall.newBuilder()
                .setBoxId(box.toString())
                .setRequest(FileWire.request(user, operation))
                .build();
        try {
            CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(OPERATION_SECONDS, TimeUnit.SECONDS);
            return FileWire.reply(ClientCalls.blockingUnaryCall(channel, EngineGrpc.getFileMethod(), options, call));
        } catch (StatusRuntimeException e) {
            throw failure(e.getStatus());
        }
    }

    @Override
    public FileReader readFile(BoxId box, String user, ReadFile what) {
        ReadFileCall request = ReadFileCall.newBuilder()
                .setBoxId(box.toString())
                .setRequest(FileWire.read(user, what))
                .build();
        CallStream<FilePiece, FilePiece> pieces = CallStream.start(
                channel.newCall(EngineGrpc.getReadFileMethod(), CallOptions.DEFAULT),
                request,
                UnaryOperator.identity(),
                this::failure,
                PIECES);
        try {
            FilePiece first = pieces.next()
                    .orElseThrow(() -> AtollException.internal("the node read a file and said nothing", null));
            return new Reader(pieces, FileWire.stat(first.getFile()), first.getData());
        } catch (InterruptedException e) {
            pieces.close();
            Thread.currentThread().interrupt();
            throw interrupted();
        } catch (RuntimeException e) {
            pieces.close();
            throw e;
        }
    }

    static AtollException interrupted() {
        return new AtollException(
                ErrorCode.NODE_UNAVAILABLE, "the call was broken off", "The server stops.", "Try again in a moment.");
    }

    private static final class Reader implements FileReader {
        private final CallStream<FilePiece, FilePiece> pieces;
        private final FileStat file;
        private ByteString first;

        Reader(CallStream<FilePiece, FilePiece> pieces, FileStat file, ByteString first) {
            this.pieces = pieces;
            this.file = file;
            this.first = first;
        }

        @Override
        public FileStat file() {
            return file;
        }

        @Override
        public Optional<ByteBuffer> next() throws InterruptedException {
            if (!first.isEmpty()) {
                ByteBuffer data = first.asReadOnlyByteBuffer();
                first = ByteString.EMPTY;
                return Optional.of(data);
            }
            while (true) {
                Optional<FilePiece> piece = pieces.next();
                if (piece.isEmpty()) {
                    return Optional.empty();
                }
                if (!piece.get().getData().isEmpty()) {
                    return Optional.of(piece.get().getData().asReadOnlyByteBuffer());
                }
            }
        }

        @Override
        public void close() {
            pieces.close();
        }
    }

    @Override
    public FileWriter writeFile(BoxId box, String user, WriteFile what) {
        ClientCall<WriteFileCall, WriteFileReply> call = channel.newCall(
                EngineGrpc.getWriteFileMethod(), CallOptions.DEFAULT.withOnReadyThreshold(Sender.READY_BYTES));
        var writer = new Writer(call);
        writer.start(WriteFileCall.newBuilder()
                .setBoxId(box.toString())
                .setRequest(WriteFileRequest.newBuilder().setOpen(FileWire.write(user, what)))
                .build());
        return writer;
    }

    private final class Writer extends Sender<WriteFileCall, WriteFileReply> implements FileWriter {
        private final ClientCall<WriteFileCall, WriteFileReply> call;
        private volatile @Nullable WriteFileReply reply;
        /** What is less than a frame of the last piece, and goes with the next. */
        private ByteString rest = ByteString.EMPTY;

        private boolean committed;

        Writer(ClientCall<WriteFileCall, WriteFileReply> call) {
            super(call);
            this.call = call;
        }

        void start(WriteFileCall open) {
            call.start(this, new Metadata());
            // One more than there will be, so that a call that answers twice is told apart by gRPC.
            call.request(2);
            call.sendMessage(open);
        }

        @Override
        AtollException failure(Status status) {
            return GrpcFiles.this.failure(status);
        }

        @Override
        public void write(ByteBuffer piece) throws InterruptedException {
            ByteString data = rest.concat(UnsafeByteOperations.unsafeWrap(piece));
            // What comes in drops goes at once.
            int whole = data.size() < FRAME ? data.size() : data.size() / FRAME * FRAME;
            rest = data.substring(whole);
            sendData(data.substring(0, whole));
        }

        private void sendData(ByteString data) throws InterruptedException {
            send(WriteFileCall.newBuilder()
                    .setRequest(WriteFileRequest.newBuilder().setData(data))
                    .build());
        }

        @Override
        public WrittenFile commit() throws InterruptedException {
            if (!rest.isEmpty()) {
                sendData(rest);
                rest = ByteString.EMPTY;
            }
            send(WriteFileCall.newBuilder()
                    .setRequest(WriteFileRequest.newBuilder().setCommit(WriteFileRequest.Commit.getDefaultInstance()))
                    .build());
            committed = true;
            call.halfClose();
            awaitEnd();
            WriteFileReply said = reply;
            if (said == null) {
                throw AtollException.internal("the node wrote a file and said nothing", null);
            }
            return FileWire.written(said);
        }

        @Override
        public void onMessage(WriteFileReply message) {
            reply = message;
        }

        @Override
        public void close() {
            if (!committed || reply == null) {
                call.cancel("the writer has broken it off", null);
            }
        }
    }

    @Override
    public NodeStream<FileEvent> watchFiles(BoxId box, String user, String path, boolean recursive) {
        WatchFilesCall request = WatchFilesCall.newBuilder()
                .setBoxId(box.toString())
                .setRequest(WatchFilesRequest.newBuilder()
                        .setUser(user)
                        .setPath(path)
                        .setRecursive(recursive))
                .build();
        return CallStream.start(
                channel.newCall(EngineGrpc.getWatchFilesMethod(), CallOptions.DEFAULT),
                request,
                FileWire::event,
                this::failure,
                EVENTS);
    }
}
