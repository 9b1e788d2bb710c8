package atoll.core;

import atoll.core.node.Node;
import atoll.core.testing.FakeNode;
import atoll.core.testing.NodeContract;

class FakeNodeTest extends NodeContract {
    @Override
    protected Node node(FakeNode behind) {
        return behind;
    }
}
