package atoll.core.testing;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.node.Image;
import atoll.core.node.ImageEvent;
import atoll.core.node.ImageSource;
import atoll.core.node.MakeImage;
import atoll.core.node.NodeImages;
import atoll.core.node.NodeStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * How a {@link FakeNode} makes images. What one is made of decides its digest. Each line of a Dockerfile is a step: {@code RUN say TEXT}
 * prints, {@code RUN fail TEXT} prints and fails, {@code RUN wait GATE} waits until {@link FakeNode#open}, {@code LABEL languages=a,b} says
 * what the image has.
 */
public final class FakeImages implements NodeImages {
    /** A registry has all but those under this host, which can't be reached. */
    public static final String AWAY = "away.example/";

    /** Nor is there anything under this one. */
    public static final String EMPTY = "empty.example/";

    private final FakeNode node;
    /** All of this is guarded by the node's lock. */
    private final List<MakeImage> made = new ArrayList<>();

    private final Map<String, byte[]> bodies = new HashMap<>();

    private int running;
    private int cancelled;

    FakeImages(FakeNode node) {
        this.node = node;
    }

    /** What was asked for, in order. */
    public List<MakeImage> requests() {
        synchronized (node.lock) {
            return List.copyOf(made);
        }
    }

    /** What came with the request of that name. */
    public byte[] bodyOf(String name) {
        synchronized (node.lock) {
            return bodies.getOrDefault(name, new byte[0]).clone();
        }
    }

    /** Under way at this moment. */
    public int running() {
        synchronized (node.lock) {
            return running;
        }
    }

    /** Broken off so far. */
    public int cancelled() {
        synchronized (node.lock) {
            return cancelled;
        }
    }

    @Override
    public List<Image> images() {
        return node.call(node::imagesNow);
    }

    @Override
    public NodeStream<ImageEvent> makeImage(MakeImage request, Optional<InputStream> body) {
        return node.mutate(() -> {
            made.add(request);
            running++;
            return new Making(request, body);
        });
    }

    private final class Making implements NodeStream<ImageEvent> {
        private final MakeImage request;
        private final Optional<InputStream> body;
        private final int connection = node.connection;
        private final List<String> lines;
        private int next;
        private boolean over;
        private boolean broken;
        private final Deque<ImageEvent> pending = new ArrayDeque<>();
        private Optional<AtollException> failure = Optional.empty();

        Making(MakeImage request, Optional<InputStream> body) {
            this.request = request;
            this.body = body;
            this.lines = request.source() instanceof ImageSource.Dockerfile file
                    ? file.text()
                            .lines()
                            .filter(line -> !line.isBlank() && !line.startsWith("#"))
                            .toList()
                    : List.of(request.name());
        }

        @Override
        public Optional<ImageEvent> next() throws InterruptedException {
            if (next == 0 && body.isPresent()) {
                try (InputStream data = body.get()) {
                    byte[] all = data.readAllBytes();
                    synchronized (node.lock) {
                        bodies.put(request.name(), all);
                    }
                } catch (IOException e) {
                    throw new AtollException(
                            ErrorCode.INVALID_REQUEST, "the body broke off: " + e.getMessage(), "", "", e);
                }
            }
            synchronized (node.lock) {
                while (true) {
                    if (broken) {
                        throw FakeNode.error(ErrorCode.NODE_UNAVAILABLE, "the stream was closed");
                    }
                    if (connection != node.connection) {
                        throw FakeNode.unavailable();
                    }
                    if (!pending.isEmpty()) {
                        return Optional.of(pending.remove());
                    }
                    if (failure.isPresent()) {
                        end();
                        throw failure.get();
                    }
                    if (over) {
                        return Optional.empty();
                    }
                    if (next == lines.size()) {
                        Image image = finished();
                        end();
                        return Optional.of(new ImageEvent.Done(image));
                    }
                    step();
                }
            }
        }

        @SuppressWarnings("WaitNotInLoop") // It is in the loop of next.
        private void step() throws InterruptedException {
            String line = lines.get(next);
            if (line.startsWith("RUN wait ") && !node.isOpen(line.substring("RUN wait ".length()))) {
                node.lock.wait();
                return;
            }
            next++;
            pending.add(new ImageEvent.Step(next, lines.size(), line, false));
            if (line.startsWith("RUN fail ")) {
                failure = Optional.of(new AtollException(
                        ErrorCode.BUILD_STEP_FAILED,
                        "step " + next + " of " + lines.size() + " failed (" + line + "): exit code 1",
                        "",
                        "It is a fake node: see the test."));
            }
            if (line.startsWith("RUN say ") || line.startsWith("RUN fail ")) {
                String text = line.substring("RUN say ".length()).strip() + "\n";
                pending.add(new ImageEvent.Log(ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)), false));
            }
        }

        private void end() {
            if (!over) {
                over = true;
                running--;
            }
        }

        private Image finished() {
            Image image = imageOf(request);
            node.add(image);
            return image;
        }

        @Override
        public void close() {
            synchronized (node.lock) {
                if (!over) {
                    broken = true;
                    cancelled++;
                    end();
                    node.lock.notifyAll();
                }
            }
        }
    }

    private Image imageOf(MakeImage request) {
        return switch (request.source()) {
            case ImageSource.Recipe(String name) -> {
                if (!node.recipes().contains(name)) {
                    throw FakeNode.error(ErrorCode.IMAGE_NOT_FOUND, "no recipe " + name);
                }
                yield image(name, Image.Origin.RECIPE, name, name, languages(name));
            }
            case ImageSource.Registry registry -> {
                String reference = registry.reference();
                if (reference.startsWith(AWAY)) {
                    throw FakeNode.error(ErrorCode.IMAGE_UNAVAILABLE, reference + ": no route to host");
                }
                if (reference.startsWith(EMPTY)) {
                    throw FakeNode.error(ErrorCode.IMAGE_NOT_FOUND, reference + ": manifest unknown");
                }
                yield image(request.name(), Image.Origin.REGISTRY, reference, reference, languages(reference));
            }
            case ImageSource.Archive _ ->
                image(
                        request.name(),
                        Image.Origin.ARCHIVE,
                        "",
                        HexFormat.of().formatHex(bodies.getOrDefault(request.name(), new byte[0])),
                        List.of(Language.BASH));
            case ImageSource.Dockerfile file ->
                image(request.name(), Image.Origin.DOCKERFILE, "", file.text() + file.namedImages(), languagesOf(file));
            case ImageSource.SavedBox(var box) -> {
                FakeNode.FakeBox saved = node.running(box);
                yield image(
                        request.name(), Image.Origin.SANDBOX, "", box.toString(), imageWith(saved.spec.imageDigest()));
            }
            case ImageSource.DockerDaemon(String reference) ->
                image(request.name(), Image.Origin.DOCKER_DAEMON, reference, reference, List.of(Language.BASH));
        };
    }

    private List<Language> imageWith(String digest) {
        return node.imagesNow().stream()
                .filter(image -> image.digest().equals(digest))
                .findFirst()
                .map(Image::languages)
                .orElse(List.of(Language.BASH));
    }

    private List<Language> languagesOf(ImageSource.Dockerfile file) {
        String label = "LABEL languages=";
        Optional<String> said =
                file.text().lines().filter(line -> line.startsWith(label)).findFirst();
        if (said.isPresent()) {
            return List.of(said.get().substring(label.length()).split(",", -1)).stream()
                    .map(Language::parse)
                    .toList();
        }
        return file.namedImages().values().stream()
                .findFirst()
                .map(this::imageWith)
                .orElse(languages(file.text()));
    }

    private static List<Language> languages(String text) {
        Language own = text.contains("go") && !text.contains("mongo")
                ? Language.GO
                : text.contains("python") || text.contains("data-science") || text.contains("base")
                        ? Language.PYTHON
                        : Language.TYPESCRIPT;
        return List.of(own, Language.BASH);
    }

    private static Image image(
            String name, Image.Origin origin, String source, String content, List<Language> languages) {
        return new Image(
                name,
                digest(origin + "\n" + content),
                1000,
                languages,
                languages.stream().findFirst(),
                Map.of("made", Map.of("of", "1")),
                origin,
                source,
                "user",
                FakeNode.START);
    }

    private static String digest(String content) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(content.getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(hash);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }

    @Override
    public long deleteImage(String digest) {
        return node.mutate(() -> {
            if (node.digestsInUse().contains(digest)) {
                throw FakeNode.error(ErrorCode.CONFLICT, "image " + digest + " is in use");
            }
            return node.removeImages(image -> image.digest().equals(digest)).size() * 1000L;
        });
    }

    @Override
    public Pruned pruneImages(Collection<String> keepDigests, Instant builtBefore) {
        return node.mutate(() -> {
            Set<String> used = node.digestsInUse();
            List<String> gone = node.removeImages(image -> !keepDigests.contains(image.digest())
                    && !used.contains(image.digest())
                    && image.builtAt().isBefore(builtBefore));
            return new Pruned(gone, gone.size() * 1000L);
        });
    }
}
