package atoll.node;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.node.Image;
import atoll.core.node.ImageEvent;
import atoll.core.node.ImageSource;
import atoll.core.node.MakeImage;
import atoll.core.node.NodeImages;
import atoll.core.node.NodeStream;
import atoll.core.template.BuildSecrets;
import atoll.proto.engine.v1.ArchiveSource;
import atoll.proto.engine.v1.BoxSource;
import atoll.proto.engine.v1.BuildNetwork;
import atoll.proto.engine.v1.DockerDaemonSource;
import atoll.proto.engine.v1.DockerfileSource;
import atoll.proto.engine.v1.EngineGrpc;
import atoll.proto.engine.v1.ImageRequest;
import atoll.proto.engine.v1.ListImagesRequest;
import atoll.proto.engine.v1.MakeImageBegin;
import atoll.proto.engine.v1.MakeImageEvent;
import atoll.proto.engine.v1.MakeImageRequest;
import atoll.proto.engine.v1.PruneImagesReply;
import atoll.proto.engine.v1.PruneImagesRequest;
import atoll.proto.engine.v1.RecipeSource;
import atoll.proto.engine.v1.RegistryAuth;
import atoll.proto.engine.v1.RegistrySource;
import com.google.protobuf.ByteString;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.LinkedBlockingQueue;
import org.jspecify.annotations.Nullable;

/** The part of {@link GrpcNode} that is about images. A body on its way takes about a MiB here, however large it is. */
final class GrpcImages implements NodeImages {
    private static final Duration QUICK = Duration.ofSeconds(15);
    private static final Duration SLOW = Duration.ofMinutes(5);
    private static final int PART_BYTES = 256 << 10;
    /** Events on their way; a log's has up to some 64 KiB. */
    private static final int EVENTS = 32;

    private final Calls calls;

    GrpcImages(Calls calls) {
        this.calls = calls;
    }

    @Override
    public List<Image> images() {
        return calls
                .unary(EngineGrpc.getListImagesMethod(), ListImagesRequest.getDefaultInstance(), "images", QUICK)
                .getImagesList()
                .stream()
                .map(Wire::image)
                .toList();
    }

    @Override
    public long deleteImage(String digest) {
        ImageRequest request = ImageRequest.newBuilder().setDigest(digest).build();
        return calls.unary(EngineGrpc.getDeleteImageMethod(), request, "removal of image " + digest, SLOW)
                .getFreedBytes();
    }

    @Override
    public Pruned pruneImages(Collection<String> keepDigests, Instant builtBefore) {
        PruneImagesRequest request = PruneImagesRequest.newBuilder()
                .addAllKeepDigests(keepDigests)
                .setBuiltBeforeUnixMs(builtBefore.toEpochMilli())
                .build();
        PruneImagesReply reply = calls.unary(EngineGrpc.getPruneImagesMethod(), request, "removal of images", SLOW);
        return new Pruned(reply.getRemovedDigestsList(), reply.getFreedBytes());
    }

    @Override
    public NodeStream<ImageEvent> makeImage(MakeImage request, Optional<InputStream> body) {
        ClientCall<MakeImageRequest, MakeImageEvent> call = calls.channel()
                .newCall(EngineGrpc.getMakeImageMethod(), CallOptions.DEFAULT.withOnReadyThreshold(Sender.READY_BYTES));
        var making = new Making(call, request.name());
        making.start(MakeImageRequest.newBuilder().setBegin(begin(request)).build());
        // Both ways at once: what the node tells must not wait for what it is sent.
        Thread sender = Thread.ofVirtual().name("image-body").unstarted(() -> making.sendAll(body));
        sender.start();
        return making;
    }

    private static MakeImageBegin begin(MakeImage request) {
        MakeImageBegin.Builder begin = MakeImageBegin.newBuilder().setName(request.name());
        return switch (request.source()) {
            case ImageSource.Recipe(String name) ->
                begin.setRecipe(RecipeSource.newBuilder().setRecipe(name)).build();
            case ImageSource.Registry registry ->
                begin.setRegistry(RegistrySource.newBuilder()
                                .setReference(registry.reference())
                                .addAllAuths(auths(registry.credentials()))
                                .addAllPlainHttp(registry.plainHttp()))
                        .build();
            case ImageSource.Archive _ ->
                begin.setArchive(ArchiveSource.getDefaultInstance()).build();
            case ImageSource.DockerDaemon(String reference) ->
                begin.setDockerDaemon(DockerDaemonSource.newBuilder().setReference(reference))
                        .build();
            case ImageSource.SavedBox(var box) ->
                begin.setBox(BoxSource.newBuilder().setBoxId(box.toString())).build();
            case ImageSource.Dockerfile file ->
                begin.setDockerfile(dockerfile(file)).build();
        };
    }

    private static DockerfileSource dockerfile(ImageSource.Dockerfile file) {
        return DockerfileSource.newBuilder()
                .setDockerfile(file.text())
                .putAllArgs(file.args())
                .setTarget(file.target())
                .putAllNamedImages(file.namedImages())
                .addAllAuths(auths(file.credentials()))
                .addAllPlainHttp(file.plainHttp())
                .setLimits(Wire.limits(file.limits()))
                .setNetwork(BuildNetwork.newBuilder()
                        .setEnabled(file.network().enabled())
                        .addAllAllow(file.network().allow()))
                .putAllStepEnv(file.stepEnv())
                .setNoCache(file.noCache())
                .setStepTimeoutMs(
                        (int) Math.min(Integer.MAX_VALUE, file.stepTimeout().toMillis()))
                .putAllSecrets(secrets(file.secrets()))
                .build();
    }

    private static Map<String, ByteString> secrets(BuildSecrets secrets) {
        Map<String, ByteString> all = new LinkedHashMap<>();
        secrets.byId().forEach((id, value) -> all.put(id, ByteString.copyFromUtf8(value)));
        return all;
    }

    private static List<RegistryAuth> auths(List<ImageSource.Credentials> credentials) {
        return credentials.stream()
                .map(one -> RegistryAuth.newBuilder()
                        .setRegistry(one.registry())
                        .setUsername(one.username())
                        .setPassword(one.password())
                        .build())
                .toList();
    }

    private final class Making extends Sender<MakeImageRequest, MakeImageEvent> implements NodeStream<ImageEvent> {
        private final ClientCall<MakeImageRequest, MakeImageEvent> call;
        private final String what;
        /** The end comes as a status. */
        private final LinkedBlockingQueue<Object> queue = new LinkedBlockingQueue<>();

        /** Whether the node has taken it on: what fails from then on is not the way to the node. */
        private volatile boolean accepted;

        private volatile @Nullable AtollException bodyFailure;

        Making(ClientCall<MakeImageRequest, MakeImageEvent> call, String name) {
            super(call);
            this.call = call;
            this.what = "image " + name;
        }

        void start(MakeImageRequest begin) {
            call.start(this, new Metadata());
            call.request(EVENTS);
            call.sendMessage(begin);
        }

        void sendAll(Optional<InputStream> body) {
            try (InputStream data = body.orElseGet(InputStream::nullInputStream)) {
                byte[] buffer = new byte[PART_BYTES];
                int count = data.readNBytes(buffer, 0, buffer.length);
                // A node that has all it needs may say so before it has all there is.
                while (count > 0
                        && taken(MakeImageRequest.newBuilder()
                                .setData(ByteString.copyFrom(buffer, 0, count))
                                .build())) {
                    count = data.readNBytes(buffer, 0, buffer.length);
                }
                call.halfClose();
            } catch (IOException e) {
                bodyFailure = new AtollException(
                        ErrorCode.INVALID_REQUEST,
                        what + ": what it is made of broke off: " + e.getMessage(),
                        "",
                        "Send it again.",
                        e);
                call.cancel("the body broke off", e);
            } catch (AtollException e) {
                // The call has ended, or is stuck: its reader is told why.
                call.cancel(e.message(), e);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                call.cancel("interrupted", e);
            } catch (IllegalStateException e) {
                // It was cancelled in this moment.
                call.cancel("broken off", e);
            }
        }

        @Override
        AtollException failure(Status status) {
            AtollException body = bodyFailure;
            return body != null ? body : calls.told(Statuses.ofImage(status, what, accepted));
        }

        @Override
        public void onHeaders(Metadata headers) {
            accepted = true;
        }

        @Override
        public void onMessage(MakeImageEvent message) {
            queue.add(message);
        }

        @Override
        public void onClose(Status status, Metadata trailers) {
            super.onClose(status, trailers);
            queue.add(status);
        }

        @Override
        public Optional<ImageEvent> next() throws InterruptedException {
            while (true) {
                Object item = queue.take();
                if (item instanceof MakeImageEvent message) {
                    call.request(1);
                    Optional<ImageEvent> event = event(message);
                    if (event.isPresent()) {
                        return event;
                    }
                } else if (item instanceof Status status) {
                    // For the next read, should there be one.
                    queue.add(status);
                    if (status.isOk()) {
                        return Optional.empty();
                    }
                    throw failure(status);
                }
            }
        }

        @Override
        public void close() {
            call.cancel("the making of the image was broken off", null);
        }
    }

    /** Empty for one that this server does not know. */
    private static Optional<ImageEvent> event(MakeImageEvent message) {
        return switch (message.getEventCase()) {
            case STEP ->
                Optional.of(new ImageEvent.Step(
                        message.getStep().getNumber(),
                        message.getStep().getTotal(),
                        message.getStep().getText(),
                        message.getStep().getCached()));
            case LOG ->
                Optional.of(new ImageEvent.Log(
                        message.getLog().getData().asReadOnlyByteBuffer(),
                        message.getLog().getStderr()));
            case PROGRESS ->
                Optional.of(new ImageEvent.Progress(
                        message.getProgress().getWhat(),
                        message.getProgress().getDoneBytes(),
                        message.getProgress().getTotalBytes()));
            case DONE -> Optional.of(new ImageEvent.Done(Wire.image(message.getDone())));
            case EVENT_NOT_SET -> Optional.empty();
        };
    }
}
