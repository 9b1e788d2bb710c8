/** What happened in a project. */
@NullMarked
package atoll.core.event;

import org.jspecify.annotations.NullMarked;
