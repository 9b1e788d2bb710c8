package atoll.core.template;

import atoll.core.ProjectId;
import java.time.Instant;
import java.util.Optional;

/**
 * A template on record. One that comes with Atoll is there only once it was changed or deleted.
 *
 * @param current the version that new sandboxes are made of
 * @param newest the last one; greater than {@code current} until its image is built
 * @param deletedAt of one that is kept so that its id says why it is gone, and for the sandboxes that are left of it
 */
public record StoredTemplate(
        ProjectId project,
        String id,
        int current,
        int newest,
        Instant createdAt,
        Instant updatedAt,
        Optional<Instant> deletedAt) {
    StoredTemplate at(int nowCurrent, int nowNewest, Instant at) {
        return new StoredTemplate(project, id, nowCurrent, nowNewest, createdAt, at, deletedAt);
    }

    StoredTemplate deleted(Instant at) {
        return new StoredTemplate(project, id, current, newest, createdAt, at, Optional.of(at));
    }
}
