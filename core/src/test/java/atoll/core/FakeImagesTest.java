package atoll.core;

import atoll.core.node.Node;
import atoll.core.testing.FakeNode;
import atoll.core.testing.NodeImageContract;

class FakeImagesTest extends NodeImageContract {
    @Override
    protected Node node(FakeNode behind) {
        return behind;
    }
}
