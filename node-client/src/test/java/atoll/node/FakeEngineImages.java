package atoll.node;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.Language;
import atoll.core.node.ImageEvent;
import atoll.core.node.ImageSource;
import atoll.core.node.MakeImage;
import atoll.core.node.NodeStream;
import atoll.core.template.BuildSecrets;
import atoll.core.testing.FakeNode;
import atoll.proto.engine.v1.BuildLog;
import atoll.proto.engine.v1.BuildProgress;
import atoll.proto.engine.v1.BuildStep;
import atoll.proto.engine.v1.DockerfileSource;
import atoll.proto.engine.v1.Image;
import atoll.proto.engine.v1.ImageOrigin;
import atoll.proto.engine.v1.MakeImageBegin;
import atoll.proto.engine.v1.MakeImageEvent;
import atoll.proto.engine.v1.MakeImageRequest;
import atoll.proto.engine.v1.RegistryAuth;
import com.google.protobuf.ByteString;
import io.grpc.Status;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.channels.Channels;
import java.nio.channels.Pipe;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Images in a {@link FakeEngine}. */
final class FakeEngineImages {
    private FakeEngineImages() {}

    static Image image(atoll.core.node.Image image) {
        StringBuilder packages = new StringBuilder("\"built\":[3]");
        image.packages()
                .forEach((kind, versions) -> versions.forEach((name, version) ->
                        packages.append(",\"%s\":{\"odd\":{\"x\":1},\"%s\":\"%s\"}".formatted(kind, name, version))));
        return Image.newBuilder()
                .setName(image.name())
                .setDigest(image.digest())
                .setSizeBytes(image.sizeBytes())
                .addAllLanguages(image.languages().stream().map(Language::text).toList())
                .addLanguages("a-language-of-the-future")
                .setDefaultLanguage(image.defaultLanguage().map(Language::text).orElse(""))
                .setOrigin(
                        switch (image.origin()) {
                            case RECIPE -> ImageOrigin.IMAGE_ORIGIN_RECIPE;
                            case REGISTRY -> ImageOrigin.IMAGE_ORIGIN_REGISTRY;
                            case ARCHIVE -> ImageOrigin.IMAGE_ORIGIN_ARCHIVE;
                            case DOCKERFILE -> ImageOrigin.IMAGE_ORIGIN_DOCKERFILE;
                            case SANDBOX -> ImageOrigin.IMAGE_ORIGIN_BOX;
                            case DOCKER_DAEMON -> ImageOrigin.IMAGE_ORIGIN_DOCKER_DAEMON;
                        })
                .setSource(image.source())
                .setBuiltAtUnixMs(image.builtAt().toEpochMilli())
                .setMetadataJson("{\"home\":{\"packages\":[1,2]},\"packages\":{" + packages + "},\"user\":\""
                        + image.user() + "\"}")
                .build();
    }

    private static ImageSource source(MakeImageBegin begin) {
        return switch (begin.getSourceCase()) {
            case RECIPE -> new ImageSource.Recipe(begin.getRecipe().getRecipe());
            case REGISTRY ->
                new ImageSource.Registry(
                        begin.getRegistry().getReference(),
                        credentials(begin.getRegistry().getAuthsList()),
                        begin.getRegistry().getPlainHttpList());
            case ARCHIVE -> new ImageSource.Archive();
            case BOX -> new ImageSource.SavedBox(BoxId.parse(begin.getBox().getBoxId()));
            case DOCKER_DAEMON ->
                new ImageSource.DockerDaemon(begin.getDockerDaemon().getReference());
            case DOCKERFILE -> dockerfile(begin.getDockerfile());
            case SOURCE_NOT_SET -> throw new IllegalArgumentException("no source");
        };
    }

    private static List<ImageSource.Credentials> credentials(List<RegistryAuth> auths) {
        return auths.stream()
                .map(auth -> new ImageSource.Credentials(auth.getRegistry(), auth.getUsername(), auth.getPassword()))
                .toList();
    }

    private static BuildSecrets secrets(Map<String, ByteString> sent) {
        Map<String, String> all = new LinkedHashMap<>();
        sent.forEach((id, value) -> all.put(id, value.toStringUtf8()));
        return new BuildSecrets(all);
    }

    private static ImageSource dockerfile(DockerfileSource file) {
        return new ImageSource.Dockerfile(
                file.getDockerfile(),
                file.getArgsMap(),
                file.getTarget(),
                file.getNamedImagesMap(),
                credentials(file.getAuthsList()),
                file.getPlainHttpList(),
                FakeEngine.limits(file.getLimits()),
                new ImageSource.Network(
                        file.getNetwork().getEnabled(), file.getNetwork().getAllowList()),
                file.getStepEnvMap(),
                file.getNoCache(),
                Duration.ofMillis(file.getStepTimeoutMs()),
                secrets(file.getSecretsMap()));
    }

    private static MakeImageEvent event(ImageEvent event) {
        return switch (event) {
            case ImageEvent.Step step ->
                MakeImageEvent.newBuilder()
                        .setStep(BuildStep.newBuilder()
                                .setNumber(step.number())
                                .setTotal(step.total())
                                .setText(step.text())
                                .setCached(step.cached()))
                        .build();
            case ImageEvent.Log log ->
                MakeImageEvent.newBuilder()
                        .setLog(BuildLog.newBuilder()
                                .setData(ByteString.copyFrom(log.data().duplicate()))
                                .setStderr(log.stderr()))
                        .build();
            case ImageEvent.Progress progress ->
                MakeImageEvent.newBuilder()
                        .setProgress(BuildProgress.newBuilder()
                                .setWhat(progress.what())
                                .setDoneBytes(progress.doneBytes())
                                .setTotalBytes(progress.totalBytes()))
                        .build();
            case ImageEvent.Done done ->
                MakeImageEvent.newBuilder().setDone(image(done.image())).build();
        };
    }

    static StreamObserver<MakeImageRequest> make(FakeNode node, ServerCallStreamObserver<MakeImageEvent> reply) {
        var call = new Call(node, reply);
        reply.setOnCancelHandler(call::cancelled);
        return call;
    }

    /** What is sent goes into a pipe, which holds back who sends. */
    private static final class Call implements StreamObserver<MakeImageRequest> {
        private final FakeNode node;
        private final ServerCallStreamObserver<MakeImageEvent> reply;
        private final Pipe pipe;
        private final OutputStream body;
        private volatile Optional<NodeStream<ImageEvent>> stream = Optional.empty();
        private volatile boolean cancelled;
        private boolean begun;

        Call(FakeNode node, ServerCallStreamObserver<MakeImageEvent> reply) {
            this.node = node;
            this.reply = reply;
            try {
                // Not Java's piped streams: those take it for the end when the thread is gone that wrote last.
                pipe = Pipe.open();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
            body = Channels.newOutputStream(pipe.sink());
        }

        @Override
        public void onNext(MakeImageRequest message) {
            try {
                if (!begun) {
                    begun = true;
                    begin(message.getBegin());
                } else {
                    message.getData().writeTo(body);
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        private void begin(MakeImageBegin begin) throws IOException {
            var data = Channels.newInputStream(pipe.source());
            Thread maker = Thread.ofVirtual().unstarted(() -> {
                try {
                    NodeStream<ImageEvent> events =
                            node.makeImage(new MakeImage(begin.getName(), source(begin)), Optional.of(data));
                    stream = Optional.of(events);
                    if (cancelled) {
                        events.close();
                    }
                    Optional<ImageEvent> event = events.next();
                    while (event.isPresent()) {
                        reply.onNext(event(event.get()));
                        event = events.next();
                    }
                    reply.onCompleted();
                } catch (AtollException e) {
                    if (!reply.isCancelled()) {
                        reply.onError(status(e).asRuntimeException());
                    }
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            });
            maker.start();
        }

        private static Status status(AtollException e) {
            Status status = switch (e.code()) {
                case IMAGE_NOT_FOUND -> Status.NOT_FOUND;
                case BUILD_STEP_FAILED -> Status.FAILED_PRECONDITION;
                case IMAGE_UNAVAILABLE -> Status.UNAVAILABLE;
                default -> FakeEngineFiles.status(e);
            };
            return status.withDescription(e.message());
        }

        void cancelled() {
            cancelled = true;
            stream.ifPresent(NodeStream::close);
        }

        @Override
        public void onError(Throwable t) {
            cancelled();
        }

        @Override
        public void onCompleted() {
            try {
                body.close();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }
}
