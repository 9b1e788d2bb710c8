/** Started boxes, kept ready so that nobody waits for a start. */
@NullMarked
package atoll.core.pool;

import org.jspecify.annotations.NullMarked;
