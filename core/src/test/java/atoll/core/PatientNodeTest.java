package atoll.core;

import atoll.core.node.Node;
import atoll.core.testing.FakeNode;
import atoll.core.testing.PatientNodeContract;

class PatientNodeTest extends PatientNodeContract {
    @Override
    protected Node node(FakeNode behind) {
        return behind;
    }
}
