package atoll.core.node;

import java.io.InputStream;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Optional;

/**
 * The images of a node, and how more come to be. Beside the errors of {@link Node}: {@code IMAGE_NOT_FOUND} (no such reference, recipe
 * or box to make one of), {@code BUILD_STEP_FAILED}, {@code IMAGE_UNAVAILABLE} (a registry can't be reached, or refuses).
 */
public interface NodeImages {
    /** Of each recipe the newest that is built, and all that were made of something else. */
    List<Image> images();

    /**
     * Makes an image; the last event is {@link ImageEvent.Done}. Closing the stream before that cancels it and leaves nothing but caches.
     *
     * @param body the archive, or a Dockerfile's context as a tar; read on a thread of its own, and closed when the stream is or has ended
     */
    NodeStream<ImageEvent> makeImage(MakeImage request, Optional<InputStream> body);

    /** Returns how many bytes that freed; {@code CONFLICT} while a box or a snapshot needs it. No error if it is not there. */
    long deleteImage(String digest);

    /** Removes caches beyond their quota, and images built before that time that are not to be kept and not needed by a box or a snapshot. */
    Pruned pruneImages(Collection<String> keepDigests, Instant builtBefore);

    /** What was removed. */
    record Pruned(List<String> digests, long freedBytes) {
        public Pruned {
            digests = List.copyOf(digests);
        }
    }
}
