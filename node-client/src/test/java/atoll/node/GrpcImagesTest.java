package atoll.node;

import atoll.core.node.Node;
import atoll.core.testing.FakeNode;
import atoll.core.testing.NodeImageContract;
import java.nio.file.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.io.TempDir;

/** What core expects of pauses, restores and snapshots, across a real Unix socket. */
class GrpcImagesTest extends NodeImageContract {
    @TempDir
    @SuppressWarnings("NullAway.Init") // JUnit sets it before anything else runs.
    private Path folder;

    private final Engines engines = new Engines();

    @Override
    protected Node node(FakeNode behind) {
        return engines.node(behind, folder);
    }

    @AfterEach
    void stop() throws InterruptedException {
        engines.stop();
    }
}
