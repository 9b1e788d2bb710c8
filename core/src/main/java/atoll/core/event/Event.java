package atoll.core.event;

import atoll.core.ProjectId;
import java.time.Instant;

/**
 * Something that happened in a project.
 *
 * @param cursor grows with every event of the store; 0 before it is stored
 * @param kind e.g. {@code sandbox.ended}
 * @param subject id of what it happened to
 */
public record Event(long cursor, ProjectId project, Instant at, String kind, String subject, String detail) {}
