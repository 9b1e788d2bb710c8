package atoll.core.template;

import atoll.core.Caller;
import atoll.core.node.Image;
import atoll.core.node.ImageEvent;
import atoll.core.node.NodeImages;
import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.function.Consumer;

/** The images of the node, as callers see and change them. */
public interface Images {
    /** The newest first. */
    List<Used> images(Caller caller);

    /** Fetches a registry's image; tells what happens on the way. */
    Image pull(Caller caller, String reference, Consumer<ImageEvent> events) throws InterruptedException;

    /** Makes an image of an archive: {@code docker save}, an OCI layout or a root file system. */
    Image importArchive(Caller caller, String name, InputStream archive) throws IOException, InterruptedException;

    /** Returns how many bytes that freed; {@code CONFLICT} while a template, a sandbox or a snapshot needs it. */
    long deleteImage(Caller caller, String digest);

    /** Removes images that nothing needs, and caches beyond their quota. */
    NodeImages.Pruned prune(Caller caller);

    /** An image, and the templates that are made of it. */
    record Used(Image image, List<String> templates) {
        public Used {
            templates = List.copyOf(templates);
        }
    }
}
