/** How much is done here, how fast, and that something has changed. */
@NullMarked
package atoll.core.stats;

import org.jspecify.annotations.NullMarked;
