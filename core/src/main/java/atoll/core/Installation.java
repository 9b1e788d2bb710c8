package atoll.core;

import atoll.core.template.Sealing;
import atoll.core.template.TemplateFiles;

/**
 * What an installation has beside its store and its node.
 *
 * @param sealing for what it must be able to read again
 * @param files logs of builds, and build contexts
 */
public record Installation(Sealing sealing, TemplateFiles files) {}
