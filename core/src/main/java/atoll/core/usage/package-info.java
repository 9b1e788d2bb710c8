/** What sandboxes use, sampled and kept. */
@NullMarked
package atoll.core.usage;

import org.jspecify.annotations.NullMarked;
