package atoll.core.testing;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.SandboxId;
import atoll.core.node.Image;
import atoll.core.node.ImageEvent;
import atoll.core.node.ImageSource;
import atoll.core.node.MakeImage;
import atoll.core.node.NodeStream;
import atoll.core.template.BuildSecrets;
import atoll.core.template.Limits;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** What core relies on where a {@code Node} makes images. */
public abstract class NodeImageContract extends NodeFixture {
    private static ImageSource.Dockerfile dockerfile(String text) {
        return new ImageSource.Dockerfile(
                text,
                Map.of("VERSION", "1"),
                "last",
                Map.of("atoll/python", "a".repeat(64)),
                List.of(new ImageSource.Credentials("registry.example:5000", "me", "secret")),
                List.of("plain.example"),
                Limits.DEFAULT,
                new ImageSource.Network(true, List.of("10.0.0.0/8")),
                Map.of("http_proxy", "http://127.0.0.1:1"),
                true,
                Duration.ofSeconds(90),
                new BuildSecrets(Map.of("token", "s3cret-é")));
    }

    private List<ImageEvent> events(MakeImage request, Optional<InputStream> body) throws InterruptedException {
        List<ImageEvent> events = new ArrayList<>();
        try (NodeStream<ImageEvent> stream = node.makeImage(request, body)) {
            Optional<ImageEvent> event = stream.next();
            while (event.isPresent()) {
                events.add(event.get());
                event = stream.next();
            }
        }
        return events;
    }

    private Image made(MakeImage request, Optional<InputStream> body) throws InterruptedException {
        return ((ImageEvent.Done) events(request, body).getLast()).image();
    }

    @Test
    void a_node_says_what_it_can_build_and_run() {
        assertThat(node.info().recipes()).contains("python", "go");
        assertThat(node.info().runtimes()).hasSize(1);
        assertThat(node.info().runtimes().getFirst().available()).isTrue();
    }

    @Test
    void an_image_is_made_of_a_recipe() throws InterruptedException {
        Image image = made(new MakeImage("go", new ImageSource.Recipe("go")), Optional.empty());
        assertThat(image.languages()).containsExactly(Language.GO, Language.BASH);
        assertThat(image.defaultLanguage()).contains(Language.GO);
        assertThat(image.origin()).isEqualTo(Image.Origin.RECIPE);
        assertThat(image.user()).isEqualTo("user");
        assertThat(node.images()).contains(image);
    }

    @Test
    void a_dockerfile_goes_over_whole_and_its_steps_and_output_come_back() throws InterruptedException {
        var source = dockerfile("FROM atoll/python\nRUN say hello\n");
        List<ImageEvent> events = events(new MakeImage("mine@1", source), Optional.empty());
        assertThat(events.get(0)).isEqualTo(new ImageEvent.Step(1, 2, "FROM atoll/python", false));
        assertThat(events.get(1)).isEqualTo(new ImageEvent.Step(2, 2, "RUN say hello", false));
        var log = (ImageEvent.Log) events.get(2);
        assertThat(StandardCharsets.UTF_8.decode(log.data().duplicate()).toString())
                .isEqualTo("hello\n");
        assertThat(((ImageEvent.Done) events.get(3)).image().origin()).isEqualTo(Image.Origin.DOCKERFILE);
        assertThat(fake.making().requests()).containsExactly(new MakeImage("mine@1", source));
    }

    @Test
    void a_context_of_some_size_goes_over_whole() throws InterruptedException {
        byte[] context = new byte[3 << 20];
        for (int i = 0; i < context.length; i++) {
            context[i] = (byte) ((i * 31) >> 3);
        }
        Image image = made(
                new MakeImage("mine@1", dockerfile("FROM scratch")), Optional.of(new ByteArrayInputStream(context)));
        assertThat(image.name()).isEqualTo("mine@1");
        assertThat(fake.making().bodyOf("mine@1")).isEqualTo(context);
    }

    @Test
    void a_body_that_breaks_off_makes_no_image() {
        InputStream end = new InputStream() {
            @Override
            public int read() throws IOException {
                throw new IOException("the cable is out");
            }

            @Override
            public int read(byte[] into, int from, int most) throws IOException {
                throw new IOException("the cable is out");
            }
        };
        var broken = new SequenceInputStream(new ByteArrayInputStream(new byte[1 << 20]), end);
        assertFails(
                ErrorCode.INVALID_REQUEST,
                () -> events(new MakeImage("mine@1", new ImageSource.Archive()), Optional.of(broken)));
        assertThat(node.images()).noneMatch(image -> image.name().equals("mine@1"));
    }

    @Test
    void what_fails_says_why() {
        assertFails(
                ErrorCode.BUILD_STEP_FAILED,
                () -> events(new MakeImage("x", dockerfile("FROM a\nRUN fail no disk")), Optional.empty()));
        assertFails(
                ErrorCode.IMAGE_NOT_FOUND,
                () -> events(new MakeImage("x", new ImageSource.Recipe("no-such-recipe")), Optional.empty()));
        assertFails(ErrorCode.IMAGE_NOT_FOUND, () -> events(registry(FakeImages.EMPTY + "x"), Optional.empty()));
        assertFails(ErrorCode.IMAGE_UNAVAILABLE, () -> events(registry(FakeImages.AWAY + "x"), Optional.empty()));
    }

    private static MakeImage registry(String reference) {
        return new MakeImage(reference, new ImageSource.Registry(reference, List.of(), List.of()));
    }

    @Test
    void closing_the_stream_cancels_it() throws Exception {
        NodeStream<ImageEvent> stream =
                node.makeImage(new MakeImage("x", dockerfile("FROM a\nRUN wait for-ever")), Optional.empty());
        assertThat(stream.next()).isPresent();
        CompletableFuture<Optional<ImageEvent>> waiting = later(stream::next);
        stream.close();
        Eventually.until(() -> fake.making().cancelled() == 1, () -> "not cancelled");
        Eventually.until(waiting::isDone, () -> "still waiting");
        assertThat(waiting).isCompletedExceptionally();
        assertThat(fake.making().running()).isZero();
        assertThat(node.images()).noneMatch(image -> image.name().equals("x"));
    }

    @Test
    void a_sandbox_is_saved_as_an_image() throws InterruptedException {
        BoxId box = box(SandboxId.random());
        Image image = made(new MakeImage("saved", new ImageSource.SavedBox(box)), Optional.empty());
        assertThat(image.origin()).isEqualTo(Image.Origin.SANDBOX);
        assertThat(image.languages()).containsExactly(Language.PYTHON, Language.BASH);
    }

    @Test
    void an_image_in_use_is_not_deleted_and_others_are() throws InterruptedException {
        box();
        Image mine = made(registry("debian:bookworm"), Optional.empty());
        assertFails(ErrorCode.CONFLICT, () -> node.deleteImage("a".repeat(64)));
        assertThat(node.deleteImage(mine.digest())).isPositive();
        assertThat(node.deleteImage(mine.digest())).isZero();
        assertThat(node.images()).doesNotContain(mine);
    }

    @Test
    void pruning_leaves_what_is_named_needed_or_young() throws InterruptedException {
        box();
        Image kept = made(registry("kept"), Optional.empty());
        Image gone = made(registry("gone"), Optional.empty());
        List<String> keep = List.of(kept.digest(), "b".repeat(64));
        assertThat(node.pruneImages(keep, gone.builtAt()).digests()).isEmpty();
        assertThat(node.pruneImages(keep, Instant.parse("2030-01-01T00:00:00Z")).digests())
                .containsExactly(gone.digest());
        assertThat(node.images()).contains(kept).doesNotContain(gone);
        assertThat(node.images()).anyMatch(image -> image.digest().equals("a".repeat(64)));
    }
}
