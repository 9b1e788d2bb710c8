package atoll.core.template;

import atoll.core.ProjectId;
import java.time.Instant;

/**
 * What opens a registry, on record.
 *
 * @param host {@code host[:port]}
 * @param sealedPassword for this installation alone; never shown
 */
public record StoredRegistry(
        ProjectId project, String host, String username, String sealedPassword, Instant updatedAt) {}
