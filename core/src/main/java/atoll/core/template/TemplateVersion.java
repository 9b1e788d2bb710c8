package atoll.core.template;

import atoll.core.ProjectId;
import java.time.Instant;

/** A version of a template, on record. */
public record TemplateVersion(
        ProjectId project, String template, int version, TemplateDefinition definition, Instant createdAt) {}
