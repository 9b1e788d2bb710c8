package atoll.core;

import atoll.core.node.Node;
import atoll.core.testing.FakeNode;
import atoll.core.testing.NodeSnapshotContract;

class FakeSnapshotsTest extends NodeSnapshotContract {
    @Override
    protected Node node(FakeNode behind) {
        return behind;
    }
}
