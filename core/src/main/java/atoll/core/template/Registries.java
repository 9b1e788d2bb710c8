package atoll.core.template;

import atoll.core.Caller;
import java.time.Instant;
import java.util.List;

/** What opens registries. Passwords go in and never come out. */
public interface Registries {
    List<Registry> list(Caller caller);

    /**
     * Keeps what opens a registry, in the place of what was there.
     *
     * @param host {@code host[:port]}
     */
    Registry put(Caller caller, String host, String username, String password);

    /** No error if it is not there. */
    void delete(Caller caller, String host);

    /** A registry that can be opened. */
    record Registry(String host, String username, Instant updatedAt) {}
}
