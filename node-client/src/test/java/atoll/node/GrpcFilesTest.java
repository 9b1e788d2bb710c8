package atoll.node;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.BoxId;
import atoll.core.file.FileWriter;
import atoll.core.file.WriteFile;
import atoll.proto.engine.v1.EngineGrpc;
import atoll.proto.engine.v1.WriteFileCall;
import atoll.proto.file.v1.WriteFileReply;
import com.google.protobuf.ByteString;
import io.grpc.stub.StreamObserver;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Random;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class GrpcFilesTest {
    @TempDir
    @SuppressWarnings("NullAway.Init") // JUnit sets it before anything else runs.
    private Path folder;

    private final Engines engines = new Engines();

    @AfterEach
    void stop() throws InterruptedException {
        engines.stop();
    }

    /** Takes an upload, and keeps the data of each message. */
    private static final class Taker extends EngineGrpc.EngineImplBase {
        private final List<ByteString> data = new CopyOnWriteArrayList<>();

        @Override
        public StreamObserver<WriteFileCall> writeFile(StreamObserver<WriteFileReply> reply) {
            return new StreamObserver<>() {
                @Override
                public void onNext(WriteFileCall call) {
                    if (call.getRequest().hasData()) {
                        data.add(call.getRequest().getData());
                    }
                }

                @Override
                public void onError(Throwable t) {}

                @Override
                public void onCompleted() {
                    reply.onNext(WriteFileReply.getDefaultInstance());
                    reply.onCompleted();
                }
            };
        }
    }

    private List<ByteString> upload(List<byte[]> pieces) throws InterruptedException {
        var taker = new Taker();
        var what = new WriteFile(
                "/a",
                WriteFile.Mode.REPLACE,
                0,
                OptionalInt.empty(),
                true,
                Optional.empty(),
                Map.of(),
                OptionalLong.empty());
        try (GrpcNode node = engines.node(taker, folder);
                FileWriter writer = node.writeFile(BoxId.random(), "", what)) {
            for (byte[] piece : pieces) {
                writer.write(ByteBuffer.wrap(piece));
            }
            assertThat(writer.commit().bytes()).isZero();
        }
        assertThat(ByteString.copyFrom(taker.data))
                .isEqualTo(ByteString.copyFrom(
                        pieces.stream().map(ByteString::copyFrom).toList()));
        return taker.data;
    }

    private static List<byte[]> random(int... sizes) {
        var random = new Random(1);
        var pieces = new ArrayList<byte[]>();
        for (int size : sizes) {
            byte[] piece = new byte[size];
            random.nextBytes(piece);
            pieces.add(piece);
        }
        return pieces;
    }

    @Test
    void a_large_upload_goes_in_whole_frames_whatever_its_pieces_are() throws InterruptedException {
        int kib64 = 64 << 10;
        List<ByteString> sent =
                upload(random(kib64, kib64, 4 * kib64, 3 * kib64, kib64 - 64, kib64 - 1, kib64, 4 * kib64));
        assertThat(sent.subList(0, sent.size() - 1))
                .allSatisfy(data -> assertThat(data.size() % GrpcFiles.FRAME).isZero());
    }

    @Test
    void what_comes_in_drops_is_sent_at_once() throws InterruptedException {
        assertThat(upload(random(1, 100, GrpcFiles.FRAME - 1, 7)).stream().map(ByteString::size))
                .containsExactly(1, 100, GrpcFiles.FRAME - 1, 7);
    }
}
