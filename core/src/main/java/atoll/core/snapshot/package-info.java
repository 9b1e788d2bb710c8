/** Snapshots of sandboxes. */
@NullMarked
package atoll.core.snapshot;

import org.jspecify.annotations.NullMarked;
