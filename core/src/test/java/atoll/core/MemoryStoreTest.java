package atoll.core;

import atoll.core.store.Store;
import atoll.core.testing.MemoryStore;
import atoll.core.testing.StoreContract;

class MemoryStoreTest extends StoreContract {
    @Override
    protected Store open() {
        return new MemoryStore();
    }
}
